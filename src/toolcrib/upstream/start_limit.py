"""Limits how many servers start concurrently, to start quickly without starving everything else.

A slow server is mostly waiting, so its slot is released after a while.

Never delays a caller that is waiting for a server.
"""

import asyncio
from typing import Final

import anyio

AT_ONCE: Final = 8
LONGEST: Final = 2.0


class StartSlot:
    """A slot to start a server."""

    def __init__(self, slots: anyio.Semaphore | None, longest: float) -> None:
        self._slots = slots
        self._timer = asyncio.get_running_loop().call_later(longest, self.end) if slots is not None else None

    def end(self) -> None:
        """Release the slot. Idempotent."""
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.release()
        if self._timer is not None:
            self._timer.cancel()


class StartLimit:
    """The start slots of one crib."""

    def __init__(self, at_once: int = AT_ONCE, longest: float = LONGEST) -> None:
        self._slots = anyio.Semaphore(at_once)
        self._longest = longest

    async def acquire(self, *, urgent: bool) -> StartSlot:
        """Wait for a slot. An urgent caller gets one at once."""
        if urgent:
            return StartSlot(None, self._longest)
        await self._slots.acquire()
        return StartSlot(self._slots, self._longest)
