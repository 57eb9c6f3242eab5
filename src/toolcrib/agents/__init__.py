"""Agents and their services: zoo, sessions, schedules, work, credits, library, notices, GitHub, symbols."""
