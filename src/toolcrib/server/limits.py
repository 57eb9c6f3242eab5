"""How much and how long: the limits of what comes over the wire, and the brake on wrong credentials.

`Limits` are values that `http` and `guard` enforce; `Throttle` counts failures per address. Neither knows of requests.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one connection and one request; times in seconds, sizes in bytes."""

    head_seconds: float = 10.0
    """From the first byte (or the connection) to the end of the headers."""
    request_seconds: float = 30.0
    """From the first byte to the end of the body."""
    stuck_seconds: float = 30.0
    """How long a client may leave an answer unread."""
    idle_seconds: int = 75
    """How long a connection stays open on which nothing is asked; it may take one more look at the clock."""
    target_bytes: int = 8 * 1024
    head_bytes: int = 64 * 1024
    header_count: int = 100
    drained_bytes: int = 64 * 1024 * 1024
    """How much of a body is read and dropped after its request was answered, so that the client sees the answer."""
    connections: int = 2000


class Throttle:
    """Counts failures per address in a sliding window. It must never block a success."""

    def __init__(
        self, allowed: int = 20, window: float = 60.0, *, kept: int = 1024, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._allowed = allowed
        self._window = window
        self._kept = kept
        self._clock = clock
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    def failed(self, address: str) -> bool:
        """Note one failure; say whether this address has had more than it is allowed."""
        now = self._clock()
        recent = [at for at in self._failures.pop(address, []) if at > now - self._window]
        # One above the limit is enough to know; the newest are kept, so that a steady stream stays braked.
        self._failures[address] = [*recent, now][-self._allowed - 1 :]
        while len(self._failures) > self._kept:
            self._failures.popitem(last=False)
        return len(self._failures[address]) > self._allowed
