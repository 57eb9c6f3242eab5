"""Graceful shutdown: refuses new calls and waits some seconds for those in flight.

Behind a proxy, `leave` comes first: only `/healthz` reports that the crib stops, so that the proxy sends new requests
to other nodes before this one refuses any.

`begin` makes the gate and the endpoint refuse new calls with `crib.stopping`. A refused request was not processed, so a
client can retry it with the next crib. Messages that belong to calls in flight are still accepted: answers to
questions, approvals and cancellations.
"""

from collections.abc import Callable

import anyio

from toolcrib.gate.gate import Gate
from toolcrib.model.errors import Unavailable

_POLL_SECONDS = 0.05


class Stopping:
    """The shutdown state of a crib."""

    def __init__(self, gate: Gate, hurry: Callable[[], None] = lambda: None) -> None:
        """`hurry` is called when the grace period is over."""
        self._gate = gate
        self._hurry = hurry
        self.has_begun = False
        self.is_leaving = False
        self._is_over = False

    @property
    def calls(self) -> tuple[str, ...]:
        """The tools of the calls in flight, one entry per call."""
        return tuple(str(ref) for ref in self._gate.in_flight)

    def leave(self) -> None:
        """Report to health checks that the crib stops, and go on serving. Idempotent."""
        self.is_leaving = True

    def begin(self) -> None:
        """Refuse new calls from now on. Idempotent."""
        self.has_begun = self.is_leaving = True
        self._gate.stop()

    def check(self, *, health: bool = False) -> None:
        """Raise `crib.stopping` once stopping has begun, or for a health check as soon as the crib leaves its proxy."""
        if self.has_begun or (health and self.is_leaving):
            raise Unavailable("crib.stopping", "The crib is stopping and accepts no new requests.")

    async def wait(self, seconds: float) -> None:
        """Wait for the calls in flight, at most this many seconds."""
        with anyio.move_on_after(seconds):
            while self._gate.in_flight:  # noqa: ASYNC110 the gate has no event for this, and only a stop needs one
                await anyio.sleep(_POLL_SECONDS)

    def finish(self) -> None:
        """End the grace period for the remaining calls."""
        self._is_over = True
        if self._gate.in_flight:
            self._hurry()

    async def drain(self, seconds: float) -> None:
        """Begin, wait and finish. Idempotent."""
        if not self._is_over:
            self.begin()
            with anyio.CancelScope(shield=True):
                await self.wait(seconds)
            self.finish()
