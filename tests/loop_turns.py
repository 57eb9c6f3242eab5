"""Counts how many items are handled within one turn of the event loop. A long turn delays everything else."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from time import perf_counter

WORK = 20e-6
"""Seconds of work per item, so that even a fast machine cannot handle a whole chunk of input within one turn."""


class Turns:
    """Counts the items in each turn of the loop. `most` is the largest count."""

    def __init__(self) -> None:
        self.total = self.most = 0
        self._now = 0

    def count(self, *_: object) -> None:
        """Count one item and work on it for a moment."""
        self.total += 1
        self._now += 1
        self.most = max(self.most, self._now)
        until = perf_counter() + WORK
        while perf_counter() < until:
            pass

    async def tick(self) -> None:
        """Take turns until cancelled."""
        while True:
            self._now = 0
            await asyncio.sleep(0)


@asynccontextmanager
async def counted_turns() -> AsyncGenerator[Turns]:
    """Count until the block ends."""
    turns = Turns()
    ticking = asyncio.create_task(turns.tick())
    try:
        yield turns
    finally:
        ticking.cancel()
