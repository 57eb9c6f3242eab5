"""Conversations of agents. So far: the transcripts that coding agents keep themselves, counted per directory."""
