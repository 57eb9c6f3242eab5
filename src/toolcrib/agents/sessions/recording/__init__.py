"""Recordings of sessions, and their replay without side effects."""
