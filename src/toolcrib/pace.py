"""Long work on the event loop at a pace that leaves the loop to others: a server may have thousands of tools.

The work is done in slices. After each of them everybody else has a turn. Work that does not end soon goes on in smaller
ones, and rests after each where somebody made use of their turn: who waits for several turns of the loop, as every call
does, is held up by one slice then, and not by one for each turn.

Above: whoever goes through many things. Below: nothing. It must never be waited for in the middle of something that
others would find half done.
"""

import time
from collections.abc import Iterable
from typing import TypeVar

import anyio
import anyio.lowlevel

Item = TypeVar("Item")

SLICE = 0.002
"""Seconds of work between two turns of others."""
SOON = 0.1
"""Seconds of work before it rests."""
SMALL_SLICE = 0.001
REST = 0.003
"""Seconds that are left to others where they have something to do."""
IDLE = 0.0001
"""Seconds within which turns are over that nobody made use of."""


class Pace:
    """The pace of one piece of work, which begins now."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._worked = 0.0
        self._slice = SLICE

    async def pause(self) -> None:
        """Let others have their turn, if it is time for that."""
        now = time.perf_counter()
        if now - self._began < self._slice:
            return
        self._worked += now - self._began
        await anyio.lowlevel.checkpoint()  # what has come in is heard
        if self._worked > SOON:
            await self._rest(now)
        self._began = time.perf_counter()

    async def _rest(self, since: float) -> None:
        self._slice = SMALL_SLICE
        await anyio.lowlevel.checkpoint()  # what was heard is acted on
        if time.perf_counter() - since > IDLE:
            await anyio.sleep(REST)


async def unhurried(items: Iterable[Item]) -> list[Item]:
    """All of them, made one by one."""
    pace = Pace()
    made: list[Item] = []
    for item in items:
        made.append(item)
        await pace.pause()
    return made
