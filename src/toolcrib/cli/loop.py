"""Runs the event loop of a command.

Must never raise an exception group with a single failure, but the failure itself. Must never wait forever for a
cancelled tool that does not end.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

if sys.platform == "win32":
    new_loop = asyncio.new_event_loop
else:
    from uvloop import new_event_loop as new_loop

Answer = TypeVar("Answer")

LAST_WORDS = 2.0
"""Seconds that remaining tasks get to end after everything is closed."""


def run(work: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
    """Run a coroutine to completion, on uvloop where available."""
    runner = asyncio.Runner(loop_factory=new_loop)
    with _announce():
        try:
            return runner.run(work())
        except BaseExceptionGroup as group:
            inside = _failures(group)
            raise (inside[0] if len(inside) == 1 else group) from group
        finally:
            _close(runner)


@contextmanager
def _announce() -> Generator[None]:
    """Set the async library of this thread for sniffio, if installed.

    It comes with `claude-agent-sdk`. anyio then asks sniffio instead of asyncio, and without this it raises
    `NoEventLoopError` in loop callbacks (protocols, timers, signals), which run outside of any task.
    """
    try:
        from sniffio import thread_local
    except ImportError:
        yield
        return
    before, thread_local.name = thread_local.name, "asyncio"
    try:
        yield
    finally:
        thread_local.name = before


def _close(runner: asyncio.Runner) -> None:
    """Close the loop, unless a task does not end; such a task ends with the process (`main.run`)."""
    loop = runner.get_loop()
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=LAST_WORDS))
    if asyncio.all_tasks(loop):
        threading.Thread(target=threading.Event().wait, name="left behind").start()
    else:
        runner.close()


def _failures(error: BaseException) -> list[BaseException]:
    """Return the leaf exceptions of nested groups."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    inside = cast("Sequence[BaseException]", error.exceptions)
    return [failure for each in inside for failure in _failures(each)]
