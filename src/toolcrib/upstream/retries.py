"""Back-off after server failures: growing pauses, then no automatic attempts while failures continue.

Pure, apart from jitter. Must never let a server that exits at once be restarted without a pause.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

LONGEST_DELAY: Final = 300.0
"""Maximum seconds of a server's requested delay that are honoured."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Timeouts and intervals of an upstream, in seconds.

    `connect` limits the handshake, `list` all lists together, `idle` and `total` a call. `rest` is the first retry
    delay, which doubles up to `longest_rest`. After `most_failures` within `window`, there is no attempt for `window`,
    and then only on demand. `refresh` is the minimum interval between two refreshes of the lists, `shortest_ttl` the
    minimum lifetime of an expiring list. A server idle for `ping_after` is pinged, and given up after `ping_wait`
    without a response. The connection of an MCP session is closed after `session_idle`.
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
    shortest_ttl: float = 30.0
    ping_after: float = 300.0
    ping_wait: float = 30.0
    session_idle: float = 600.0


class Retries:
    """The failures of one server. Times come from one monotonic clock."""

    def __init__(self, timing: Timing, jitter: Callable[[], float] = random.random) -> None:
        self._timing = timing
        self._jitter = jitter
        self._in_a_row = 0
        self._recent: deque[float] = deque(maxlen=timing.most_failures)
        self.until = 0.0
        """No attempt is made before this time."""

    @property
    def in_a_row(self) -> int:
        """Failures since the last stable connection."""
        return self._in_a_row

    def failed(self, now: float, *, up_since: float | None = None, requested_delay: float = 0.0) -> None:
        """Record a failure. `up_since` is when the broken connection opened; the server may request a delay."""
        if up_since is not None and now - up_since >= self._timing.window:
            self.reset()
        self._in_a_row += 1
        self._recent.append(now)
        rest = min(self._timing.longest_rest, self._timing.rest * 2 ** min(self._in_a_row - 1, 16))
        pause = self._timing.window if self.is_open(now) else rest * (0.75 + self._jitter() / 2)
        self.until = now + max(pause, min(requested_delay, LONGEST_DELAY))

    def is_open(self, now: float) -> bool:
        """Return whether the circuit is open: too many recent failures for automatic attempts."""
        recent = self._recent
        return len(recent) == recent.maxlen and now - recent[0] <= self._timing.window

    def reset(self) -> None:
        """Forget all failures, after a user's request or a stable connection."""
        self._in_a_row = 0
        self._recent.clear()
        self.until = 0.0
