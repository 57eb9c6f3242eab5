"""How much of the event loop the output of one upstream may take."""

import asyncio
import heapq
import math
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextvars import Context
from typing import Any

import pytest

from toolcrib.base.processes import pipes
from toolcrib.base.processes.pipes import SLICE, FlowControl


@pytest.fixture(autouse=True)
def one_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure in one unlimited window, independent of the machine's load."""
    monkeypatch.setattr(pipes, "WINDOW", math.inf)


class StepLoop(asyncio.SelectorEventLoop):
    """An event loop that runs callbacks in order of time without waiting, and records the delays."""

    def __init__(self) -> None:
        super().__init__()
        self.close()
        self.delays: list[float] = []
        self._due: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._now = 0.0

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        return self.call_later(0.0, callback, *args)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self.delays.append(delay)
        handle = asyncio.TimerHandle(self._now + delay, callback, args, self)
        heapq.heappush(self._due, (handle.when(), len(self.delays), handle))
        return handle

    def run(self) -> None:
        """Run until nothing is scheduled."""
        while self._due:
            self._now, _, handle = heapq.heappop(self._due)
            if not handle.cancelled():
                handle._run()


class Source:
    """A source whose data takes `seconds` to handle."""

    def __init__(self, seconds: float = 0.0, loop: AbstractEventLoop | None = None) -> None:
        self.seconds = seconds
        self.handled: list[bytes] = []
        self.is_held = False
        self.flow = FlowControl(self._handle, self._hold, self._release, loop)

    def _handle(self, data: bytes) -> None:
        self.handled.append(data)
        ends = time.thread_time() + self.seconds
        while time.thread_time() < ends:
            pass

    def _hold(self) -> None:
        self.is_held = True

    def _release(self) -> None:
        self.is_held = False


async def until_handled(source: Source) -> None:
    """Wait until everything is handled."""
    over = asyncio.Event()
    source.flow.finish(over.set)
    await asyncio.wait_for(over.wait(), 30)


@pytest.mark.anyio
async def test_single_message_is_handled_at_once() -> None:
    source = Source()
    source.flow.received(b"one")
    assert source.handled == [b"one"]
    assert not source.is_held


@pytest.mark.anyio
async def test_large_data_is_handled_in_order_over_several_turns_while_reading_is_held() -> None:
    source = Source(seconds=0.001)
    data = bytes(range(256)) * 1024  # 32 slices
    source.flow.received(data)
    assert source.flow.is_behind
    assert source.is_held
    assert len(source.handled) < 10, "only one turn of the loop"
    source.flow.received(b"and more")
    await until_handled(source)
    assert b"".join(source.handled) == data + b"and more"
    assert max(map(len, source.handled)) <= SLICE


def test_reading_resumes_after_everything_is_handled() -> None:
    loop = StepLoop()
    source = Source(seconds=0.001, loop=loop)
    source.flow.received(b"x" * SLICE * 20)
    assert source.is_held
    loop.run()
    assert not source.is_held
    assert not source.flow.is_behind


def test_busy_flow_rests_longer_than_it_works() -> None:
    loop = StepLoop()
    source = Source(seconds=0.001, loop=loop)
    source.flow.received(b"x" * SLICE * 200)
    loop.run()
    rests = [delay for delay in loop.delays if delay]
    assert sum(rests) > 2 * 0.1, "three seconds of rest for each second of work, after the first 0.05 s"
    assert max(map(len, source.handled)) <= SLICE
    assert sum(map(len, source.handled)) == SLICE * 200


def test_two_busy_flows_rest_longer_than_one() -> None:
    loop = StepLoop()
    one, other = Source(seconds=0.001, loop=loop), Source(seconds=0.001, loop=loop)
    one.flow.received(b"x" * SLICE * 100)
    loop.run()
    alone = sum(loop.delays)
    loop.delays.clear()
    one.flow.received(b"x" * SLICE * 100)
    other.flow.received(b"x" * SLICE * 100)
    loop.run()
    assert sum(loop.delays) > 2.5 * alone, "twice the work, at half the share for each"


@pytest.mark.anyio
async def test_dropped_data_is_not_handled_and_finish_is_reported() -> None:
    source = Source(seconds=0.001)
    source.flow.received(b"x" * SLICE * 100)
    handled = len(source.handled)
    source.flow.drop()
    assert not source.is_held
    await until_handled(source)
    assert len(source.handled) == handled
