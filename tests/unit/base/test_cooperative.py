"""Long work yields to the event loop."""

import time
from collections import Counter
from collections.abc import Iterator

import anyio
import anyio.lowlevel
import pytest

from toolcrib.base.cooperative import IDLE, SLICE, SOON, collect_paced

pytestmark = pytest.mark.anyio

SLICES = 2 * int(SOON / SLICE)


def spin(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


async def test_other_tasks_run_after_each_slice_and_more_often_after_a_while() -> None:
    made: list[int] = []
    turns: Counter[int] = Counter()
    begun = 0

    def slices() -> Iterator[int]:
        nonlocal begun
        for number in range(SLICES):
            begun += 1
            spin(SLICE)
            yield number

    async def work() -> None:
        made.extend(await collect_paced(slices()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        while not made:
            await anyio.lowlevel.checkpoint()
            turns[begun] += 1
            spin(IDLE)
    assert made == list(range(SLICES)), "all items are made, in order"
    assert all(turns[number] for number in range(1, SLICES))
    assert turns[SLICES - 1] > turns[1], "long work rests"


async def test_empty_work_returns_an_empty_list() -> None:
    assert await collect_paced(()) == []
