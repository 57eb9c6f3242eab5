"""Runs long work on the event loop in slices, without delaying other tasks: a server may have thousands of tools.

The pacer yields to the loop after each slice. Work that takes longer continues in smaller slices and sleeps after each
one if other tasks used their turn. A call needs several turns of the loop; this way it is delayed by one slice in
total, not by one per turn.

Must never be awaited while shared state is inconsistent.
"""

import time
from collections.abc import Iterable
from typing import TypeVar

import anyio
import anyio.lowlevel

Item = TypeVar("Item")

SLICE = 0.002
"""Seconds of work between two yields."""
SOON = 0.1
"""Seconds of work after which the pacer starts to sleep."""
SMALL_SLICE = 0.001
REST = 0.003
"""Seconds to sleep if other tasks have work."""
IDLE = 0.0001
"""Seconds; a yield shorter than this was not used by other tasks."""


class Pacer:
    """Paces one piece of work, starting now."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._worked = 0.0
        self._slice = SLICE

    async def pause(self) -> None:
        """Yield to other tasks if the current slice is used up."""
        now = time.perf_counter()
        if now - self._began < self._slice:
            return
        self._worked += now - self._began
        await anyio.lowlevel.checkpoint()  # lets the loop receive input
        if self._worked > SOON:
            await self._give_way(now)
        self._began = time.perf_counter()

    async def _give_way(self, since: float) -> None:
        self._slice = SMALL_SLICE
        await anyio.lowlevel.checkpoint()  # lets tasks handle that input
        if time.perf_counter() - since > IDLE:
            await anyio.sleep(REST)


async def collect_paced(items: Iterable[Item]) -> list[Item]:
    """Return all items, produced one by one with pauses."""
    pace = Pacer()
    made: list[Item] = []
    for item in items:
        made.append(item)
        await pace.pause()
    return made
