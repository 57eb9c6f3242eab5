"""How the work of a command ends: with a result, with its own error, or by a signal."""

import asyncio
import contextvars
import os
import signal
import socket
import threading

import anyio
import anyio.lowlevel
import pytest
import typer

from toolcrib.cli.loop import run
from toolcrib.cli.signals import until_signalled
from toolcrib.model.errors import Unavailable


def test_error_is_unwrapped_from_task_groups() -> None:
    async def work() -> None:
        async with anyio.create_task_group(), anyio.create_task_group():
            raise Unavailable("crib.closed", "Gone.")

    with pytest.raises(Unavailable, match="Gone"):
        run(work)


def test_several_errors_stay_in_a_group() -> None:
    async def fail() -> None:
        raise ValueError("one of two")

    async def work() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail)
            tasks.start_soon(fail)

    with pytest.raises(ExceptionGroup) as caught:
        run(work)
    assert len(caught.value.exceptions) == 2


def test_finished_work_returns_its_result_and_restores_the_handlers() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the default, as in a command; the test run has its own

    async def work() -> str:
        async with until_signalled():
            return "done"

    try:
        assert run(work) == "done"
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_the_work_then_its_surroundings_then_the_command(number: signal.Signals) -> None:
    order: list[str] = []

    async def work() -> None:
        try:
            async with until_signalled():
                os.kill(os.getpid(), number)
                try:
                    with anyio.fail_after(5):
                        await anyio.sleep_forever()
                finally:
                    order.append("work")
        finally:
            await anyio.lowlevel.checkpoint()
            order.append("around")

    with pytest.raises(typer.Exit) as caught:
        run(work)
    assert caught.value.exit_code == 128 + number
    assert order == ["work", "around"]


def test_error_of_the_work_is_raised() -> None:
    async def work() -> None:
        async with until_signalled():
            raise Unavailable("crib.closed", "Gone.")

    with pytest.raises(Unavailable):
        run(work)


def test_callbacks_of_the_loop_can_use_anyio_with_sniffio_installed() -> None:
    import sniffio

    async def work() -> list[str]:
        loop, names = asyncio.get_running_loop(), list[str]()
        all_called = asyncio.Event()
        own_end, other_end = socket.socketpair()

        def callback(source: str) -> None:
            anyio.CancelScope()  # raises NoEventLoopError where the event loop is unknown
            names.append(source)
            if len(names) == 4:
                all_called.set()

        with own_end, other_end:
            own_end.setblocking(False)
            other_end.send(b"x")
            loop.add_reader(own_end, lambda: (loop.remove_reader(own_end), callback("reader")))
            loop.call_soon(callback, "soon", context=contextvars.Context())
            loop.call_later(0.001, callback, "timer", context=contextvars.Context())
            threading.Thread(target=loop.call_soon_threadsafe, args=(callback, "thread")).start()
            await asyncio.wait_for(all_called.wait(), 10)
        return sorted(names)

    assert sniffio.thread_local.name is None
    assert run(work) == ["reader", "soon", "thread", "timer"]
    assert sniffio.thread_local.name is None
