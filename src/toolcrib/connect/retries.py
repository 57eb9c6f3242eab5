"""When a server that failed is tried again: after ever longer pauses, and not by itself any more if it keeps failing.

Above: `link`. Pure but for the dice. It must never let a server that ends at once be started without pause.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

LONGEST_WISH: Final = 300.0
"""The seconds up to which a server's wish to be left alone is granted."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of a link's patience.

    `connect` for the greeting, `list` for all lists together, `idle` and `total` for a call, `rest` before the first
    new attempt, which doubles up to `longest_rest`. After `most_failures` within `window` nothing is tried for `window`
    and then only when somebody asks. `refresh` is the shortest time between two refreshes of the lists. A server that
    nobody has used for `ping_after` is asked whether it is there, and given up after `ping_wait` without an answer. The
    connection of a session is closed after `session_idle`.
    """

    connect: float = 30.0
    list: float = 30.0
    idle: float = 300.0
    total: float = 1800.0
    rest: float = 1.0
    longest_rest: float = 60.0
    most_failures: int = 5
    window: float = 60.0
    refresh: float = 1.0
    ping_after: float = 300.0
    ping_wait: float = 30.0
    session_idle: float = 600.0


class Retries:
    """The failures of one server. Moments are those of one clock that nobody sets."""

    def __init__(self, timing: Timing, dice: Callable[[], float] = random.random) -> None:
        self._timing = timing
        self._dice = dice
        self._in_a_row = 0
        self._recent: deque[float] = deque(maxlen=timing.most_failures)
        self.until = 0.0
        """Before this moment the server is left alone."""

    @property
    def in_a_row(self) -> int:
        """Failures since the server last held."""
        return self._in_a_row

    def failed(self, now: float, *, up_since: float | None = None, wish: float = 0.0) -> None:
        """Note a failure; `up_since` is when the connection stood that broke, `wish` how long the server asks for."""
        if up_since is not None and now - up_since >= self._timing.window:
            self.reset()
        self._in_a_row += 1
        self._recent.append(now)
        rest = min(self._timing.longest_rest, self._timing.rest * 2 ** min(self._in_a_row - 1, 16))
        pause = self._timing.window if self.is_open(now) else rest * (0.75 + self._dice() / 2)
        self.until = now + max(pause, min(wish, LONGEST_WISH))

    def is_open(self, now: float) -> bool:
        """Whether it failed so often in a short time that nothing tries it by itself."""
        recent = self._recent
        return len(recent) == recent.maxlen and now - recent[0] <= self._timing.window

    def reset(self) -> None:
        """Forget the failures: a person asks for a new attempt, or the server held for long enough."""
        self._in_a_row = 0
        self._recent.clear()
        self.until = 0.0
