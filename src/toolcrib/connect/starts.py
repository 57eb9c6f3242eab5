"""How many servers are opened at the same time: enough to be quick, not so many that nothing else runs.

A server that takes long does not work for us meanwhile, so its turn ends after a while and delays nobody. Above:
`link`. It must never make somebody wait who asked for a server.
"""

import asyncio
from typing import Final

import anyio

AT_ONCE: Final = 8
LONGEST: Final = 2.0


class Turn:
    """The right to be opened now."""

    def __init__(self, seats: anyio.Semaphore | None, longest: float) -> None:
        self._seats = seats
        self._timer = asyncio.get_running_loop().call_later(longest, self.end) if seats is not None else None

    def end(self) -> None:
        """Give it back; again and again is the same as once."""
        seats, self._seats = self._seats, None
        if seats is not None:
            seats.release()
        if self._timer is not None:
            self._timer.cancel()


class Starts:
    """The turns of one crib."""

    def __init__(self, at_once: int = AT_ONCE, longest: float = LONGEST) -> None:
        self._seats = anyio.Semaphore(at_once)
        self._longest = longest

    async def take(self, *, hurried: bool) -> Turn:
        """Wait for a turn; who is hurried has one at once."""
        if hurried:
            return Turn(None, self._longest)
        await self._seats.acquire()
        return Turn(self._seats, self._longest)
