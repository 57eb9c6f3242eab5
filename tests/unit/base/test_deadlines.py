"""Deadlines of calls: each ends only its own block, in time."""

import asyncio

import anyio
import pytest

from toolcrib.base.deadlines import Deadlines

pytestmark = pytest.mark.anyio

SOON = 0.02
LATE = 60.0


async def wait_forever() -> None:
    await asyncio.get_running_loop().create_future()


async def test_expired_block_raises_a_timeout_and_its_task_continues() -> None:
    deadlines = Deadlines()
    with anyio.fail_after(10):
        for _ in range(2):
            with pytest.raises(TimeoutError), deadlines.start(SOON):
                await wait_forever()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_block_that_ends_in_time_is_not_cancelled_later() -> None:
    deadlines = Deadlines()
    with anyio.fail_after(10):
        with deadlines.start(SOON):
            pass
        with pytest.raises(TimeoutError), deadlines.start(2 * SOON):  # longer than the first deadline
            await wait_forever()


async def test_short_deadline_started_after_a_long_one_expires_first() -> None:
    deadlines = Deadlines()
    with anyio.fail_after(10), deadlines.start(LATE), pytest.raises(TimeoutError), deadlines.start(SOON):
        await wait_forever()


async def test_concurrent_calls_have_independent_deadlines() -> None:
    deadlines = Deadlines()
    over: list[int] = []

    async def call(number: int, seconds: float) -> None:
        try:
            with deadlines.start(seconds):
                await wait_forever()
        except TimeoutError:
            over.append(number)

    with anyio.fail_after(10):
        await asyncio.gather(call(3, 5 * SOON), call(1, SOON), call(2, 3 * SOON))
    assert over == [1, 2, 3]


async def test_paused_deadline_does_not_expire_until_every_pause_ends() -> None:
    deadlines = Deadlines()
    with anyio.fail_after(10):
        with deadlines.start(SOON) as deadline:
            deadline.pause()
            deadline.pause()
            deadline.resume()
            with pytest.raises(TimeoutError), deadlines.start(3 * SOON):  # long after the paused deadline
                await wait_forever()
        with pytest.raises(TimeoutError), deadlines.start(SOON) as deadline:
            deadline.pause()
            deadline.resume()
            await wait_forever()


async def test_cancellation_from_outside_is_not_a_timeout() -> None:
    deadlines = Deadlines()
    began = asyncio.Event()

    async def call() -> None:
        with deadlines.start(LATE):
            began.set()
            await wait_forever()

    with anyio.fail_after(10):
        task = asyncio.create_task(call())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert task.cancelled()


async def test_resuming_an_ended_deadline_cancels_nothing() -> None:
    deadlines = Deadlines()
    with anyio.fail_after(10):
        with deadlines.start(SOON) as deadline:
            deadline.pause()
        deadline.resume()
        with pytest.raises(TimeoutError), deadlines.start(3 * SOON):
            await wait_forever()


async def test_moved_deadline_expires_at_the_new_moment_and_leaves_the_task_intact() -> None:
    deadlines = Deadlines()
    deadline = deadlines.start(LATE)
    with anyio.fail_after(10):
        deadline.move(deadlines.now() + SOON)
        try:
            await wait_forever()
        except asyncio.CancelledError:
            assert deadline.has_expired()
        finally:
            deadline.stop()
        await asyncio.sleep(0)  # the cancellation is undone
