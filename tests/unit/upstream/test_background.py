"""Tasks that callbacks of the event loop start."""

import asyncio
import contextvars
import logging

import pytest

from toolcrib.upstream.background import BackgroundTasks

pytestmark = pytest.mark.anyio


async def test_callback_outside_of_any_task_starts_a_task() -> None:
    done = asyncio.Event()

    async def work() -> None:
        done.set()

    async with BackgroundTasks() as background:
        asyncio.get_running_loop().call_soon(background.start, work, context=contextvars.Context())
        await asyncio.wait_for(done.wait(), 10)


async def test_end_of_the_block_cancels_and_awaits_running_tasks() -> None:
    began, ended = asyncio.Event(), list[str]()

    async def work() -> None:
        try:
            began.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("ended")

    async with BackgroundTasks() as background:
        background.start(work)
        await began.wait()
    assert ended == ["ended"]
    background.start(work)
    await asyncio.sleep(0)
    assert ended == ["ended"]


async def test_failing_task_is_logged_and_does_not_end_others(caplog: pytest.LogCaptureFixture) -> None:
    done = asyncio.Event()

    async def fail() -> None:
        raise ValueError("broken")

    async def work() -> None:
        done.set()

    with caplog.at_level(logging.ERROR):
        async with BackgroundTasks() as background:
            background.start(fail)
            background.start(work)
            await asyncio.wait_for(done.wait(), 10)
    assert "broken" in caplog.text
