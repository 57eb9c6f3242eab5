"""Schedules: agents that are given a prompt at set times.

`cadence` says when, `readiness` whether a run could begin, `runs` makes one, `schedules` follows all of them.
Above: `host`, the doors, built-in tools. Below: the sessions, the gate, the store.
"""

from toolcrib.schedule.readiness import Readiness, ReadinessCheck
from toolcrib.schedule.runs import Runs
from toolcrib.schedule.schedules import Clock, Schedules

__all__ = ["Clock", "Readiness", "ReadinessCheck", "Runs", "Schedules"]
