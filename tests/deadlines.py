"""Deadlines for tests on a busy machine, stretched by its load per processor.

A deadline in a test ends what hangs, or checks that something happens soon. Both assume an idle machine. Only the
tests' own deadlines are stretched, never those of the program.

"""

import inspect
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import anyio

TESTS = str(Path(__file__).parent)
SHORTEST = 1.0
"""Shorter deadlines are expected to expire."""
MOST = 12.0

_fail_after = anyio.fail_after


def stretched(seconds: float) -> float:
    """Return a time limit stretched by the current load."""
    waiting = os.getloadavg()[0] / (os.cpu_count() or 1)
    return seconds * min(MOST, max(1.0, 1.5 * waiting))


def fail_after(delay: float | None, shield: bool = False) -> AbstractContextManager[Any]:
    """Do what `anyio.fail_after` does, with the deadlines of tests stretched."""
    frame = inspect.currentframe()
    caller = str(frame.f_back.f_globals.get("__file__", "")) if frame is not None and frame.f_back is not None else ""
    if delay is not None and delay >= SHORTEST and caller.startswith(TESTS):
        delay = stretched(delay)
    return _fail_after(delay, shield)


def be_patient() -> None:
    """Stretch all deadlines that tests set from now on."""
    setattr(anyio, "fail_after", fail_after)  # noqa: B010 the type checker knows the original
