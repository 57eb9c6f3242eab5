"""Clocks of calls: each ends its own block, in time, and nothing else."""

import asyncio

import anyio
import pytest

from toolcrib.gate.clocks import Clocks

pytestmark = pytest.mark.anyio

SOON = 0.02
LATE = 60.0


async def wait_forever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_a_block_that_takes_too_long_ends_in_a_time_out_and_its_task_goes_on() -> None:
    clocks = Clocks()
    with anyio.fail_after(10):
        for _ in range(2):
            with pytest.raises(TimeoutError), clocks.start(SOON):
                await wait_forever()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_block_that_ends_in_time_is_left_alone_afterwards() -> None:
    clocks = Clocks()
    with anyio.fail_after(10):
        with clocks.start(SOON):
            pass
        with pytest.raises(TimeoutError), clocks.start(2 * SOON):  # longer than the first one had
            await wait_forever()


async def test_a_short_time_that_begins_after_a_long_one_is_not_forgotten() -> None:
    clocks = Clocks()
    with anyio.fail_after(10), clocks.start(LATE), pytest.raises(TimeoutError), clocks.start(SOON):
        await wait_forever()


async def test_every_call_has_a_time_of_its_own() -> None:
    clocks = Clocks()
    over: list[int] = []

    async def call(number: int, seconds: float) -> None:
        try:
            with clocks.start(seconds):
                await wait_forever()
        except TimeoutError:
            over.append(number)

    with anyio.fail_after(10):
        await asyncio.gather(call(3, 5 * SOON), call(1, SOON), call(2, 3 * SOON))
    assert over == [1, 2, 3]


async def test_time_stands_still_until_every_pause_is_over() -> None:
    clocks = Clocks()
    with anyio.fail_after(10):
        with clocks.start(SOON) as clock:
            clock.pause()
            clock.pause()
            clock.go_on()
            with pytest.raises(TimeoutError), clocks.start(3 * SOON):  # far beyond the time of the other one
                await wait_forever()
        with pytest.raises(TimeoutError), clocks.start(SOON) as clock:
            clock.pause()
            clock.go_on()
            await wait_forever()


async def test_a_cancellation_from_outside_stays_one() -> None:
    clocks = Clocks()
    began = asyncio.Event()

    async def call() -> None:
        with clocks.start(LATE):
            began.set()
            await wait_forever()

    with anyio.fail_after(10):
        task = asyncio.create_task(call())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert task.cancelled()


async def test_what_goes_on_after_its_block_has_ended_ends_nothing() -> None:
    clocks = Clocks()
    with anyio.fail_after(10):
        with clocks.start(SOON) as clock:
            clock.pause()
        clock.go_on()
        with pytest.raises(TimeoutError), clocks.start(3 * SOON):
            await wait_forever()
