"""Limits on the size and duration of requests, and the throttle on wrong credentials.

`http` and `guard` enforce `WireLimits`. `Throttle` counts failures per address.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from toolcrib.model.errors import Unavailable
from toolcrib.nodes.shared_counts import SharedCounts

ENDED = "toolcrib.ended"
"""Scope key: an event that is set when the request's credential ends. Absent if the credential never ends."""
PRINCIPAL = "toolcrib.principal"
"""Scope key of the authenticated principal."""
BY_OWNER = "toolcrib.by_owner"
"""Scope key that is set if the owner acts as a named token."""
CREDENTIAL = "toolcrib.credential"
"""Scope key: the key of the request's credential, stable across restarts of the crib."""
BROWSER = "toolcrib.browser"
"""Scope key: the id of the sign-in of a browser. Absent if the request has a token instead."""
CONNECTION = "toolcrib.connection"
"""State key in the scope: the connection of the request, which the guard claims for its principal."""

WHOLE = "toolcrib.whole"
"""Message type that combines the start and body of a response, halving the calls through the applications.

Allowed only if the scope's `extensions` contain it.
"""


@dataclass(frozen=True, slots=True)
class WireLimits:
    """The limits of one connection and one request. Times are in seconds, sizes in bytes."""

    head_seconds: float = 10.0
    """From the first byte, or the connection, to the end of the headers."""
    request_seconds: float = 30.0
    """From the first byte to the end of the body."""
    stuck_seconds: float = 30.0
    """How long a client may leave a response unread."""
    idle_seconds: int = 75
    """How long an idle connection stays open. Closing may be delayed until the next timer check."""
    target_bytes: int = 8 * 1024
    head_bytes: int = 64 * 1024
    header_count: int = 100
    drained_bytes: int = 64 * 1024 * 1024
    """How much of a body is discarded after its request was answered, so that the client can read the response."""
    connections: int = 2000


class Throttle:
    """Counts failures per address in a sliding window. Must never block a success."""

    def __init__(
        self,
        allowed: int = 20,
        window: float = 60.0,
        *,
        capacity: int = 1024,
        clock: Callable[[], float] = time.monotonic,
        counts: SharedCounts | None = None,
    ) -> None:
        """`counts` adds the failures at other nodes."""
        self._counts = counts
        self._allowed = allowed
        self._window = window
        self._capacity = capacity
        self._clock = clock
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    async def failed(self, address: str) -> bool:
        """Record a failure here and for other nodes. Return whether this address has exceeded its allowance."""
        exceeded = self.record_failure(address)
        if exceeded or self._counts is None:
            return exceeded
        try:
            _, used = await self._counts.add(f"sign-in {address}", 1.0, self._window)
        except Unavailable:  # without the database, this node counts alone
            return False
        return used.amount > self._allowed

    def record_failure(self, address: str) -> bool:
        """Record a failure. Return whether this address has exceeded its allowance."""
        now = self._clock()
        recent = [at for at in self._failures.pop(address, []) if at > now - self._window]
        # One entry above the limit is enough. The newest are capacity, so that a steady stream stays throttled.
        self._failures[address] = [*recent, now][-self._allowed - 1 :]
        while len(self._failures) > self._capacity:
            self._failures.popitem(last=False)
        return len(self._failures[address]) > self._allowed
