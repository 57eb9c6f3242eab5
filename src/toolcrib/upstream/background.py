"""Tasks started from event loop callbacks, where data from a pipe or socket often needs an asynchronous reply.

Such a callback runs outside of any task. There anyio asks `sniffio`, if installed, which event loop is running, and
sniffio does not know: starting a task in an anyio task group raises `NoEventLoopError`. These are therefore plain
asyncio tasks.

Invariant: no task outlives the block, and a failing task never ends another one.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

import anyio

logger = logging.getLogger(__name__)


class BackgroundTasks:
    """A task group that ends with its `async with` block. `start` may be called from any callback of its event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_over = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            with anyio.CancelScope(shield=True):
                await asyncio.wait(self._tasks)

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a task. Does nothing after the block has ended."""
        if self._is_over:
            return
        task = self._loop.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("A background task of a server failed.", exc_info=error)
