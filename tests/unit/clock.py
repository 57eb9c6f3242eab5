"""A clock for tests of deadlines and windows."""

from dataclasses import dataclass


@dataclass
class Clock:
    """A clock that a test sets."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now
