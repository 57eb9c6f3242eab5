"""Limits how many servers start concurrently, to start quickly without starving everything else.

A slow server is mostly waiting, so its slot is released after a while.

Never delays a caller that is waiting for a server.
"""

import asyncio
from typing import Final

import anyio

AT_ONCE: Final = 8
LONGEST: Final = 2.0


class Turn:
    """A slot to start a server."""

    def __init__(self, seats: anyio.Semaphore | None, longest: float) -> None:
        self._seats = seats
        self._timer = asyncio.get_running_loop().call_later(longest, self.end) if seats is not None else None

    def end(self) -> None:
        """Release the slot. Idempotent."""
        seats, self._seats = self._seats, None
        if seats is not None:
            seats.release()
        if self._timer is not None:
            self._timer.cancel()


class StartLimit:
    """The start slots of one crib."""

    def __init__(self, at_once: int = AT_ONCE, longest: float = LONGEST) -> None:
        self._seats = anyio.Semaphore(at_once)
        self._longest = longest

    async def take(self, *, hurried: bool) -> Turn:
        """Wait for a slot. A hurried caller gets one at once."""
        if hurried:
            return Turn(None, self._longest)
        await self._seats.acquire()
        return Turn(self._seats, self._longest)
