"""Signal handling: the first signal cancels the work, a second one kills the process.

Must never swallow a failure of the work.
"""

import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import anyio
import typer
from anyio import CancelScope


@asynccontextmanager
async def until_signalled() -> AsyncGenerator[None]:
    """Run the body until it is done or a signal arrives; then exit with 128 plus the signal number.

    Only the body is cancelled. Outer contexts close afterwards with the default handlers restored, so that a second
    signal kills the process.
    """
    if sys.platform == "win32":
        yield  # on Windows, Ctrl-C interrupts the loop
        return
    failed: Exception | None = None
    caught: list[signal.Signals] = []
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_on_signal, signals, caught, tasks.cancel_scope)
            try:
                yield
            except Exception as error:  # noqa: BLE001 boundary: raised again below, outside the group that would wrap it
                failed = error
            tasks.cancel_scope.cancel()
    if failed:
        raise failed
    if caught:
        raise typer.Exit(128 + caught[0])


async def _end_on_signal(
    signals: AsyncIterator[signal.Signals], caught: list[signal.Signals], work: CancelScope
) -> None:
    async for number in signals:
        caught.append(number)
        work.cancel()
        return
