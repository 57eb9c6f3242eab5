"""Schedules: prompts sent to agents at set times.

`cadence` computes due times, `readiness` checks whether a run could start, `runs` executes one, `schedules` manages all
of them.
"""
