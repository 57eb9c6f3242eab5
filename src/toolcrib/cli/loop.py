"""The event loop of a command.

Above: the commands. It must never let a group of one failure out: what a person is told is the failure itself. Nor may
it wait without end for a tool that was cancelled and takes no notice.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar, cast

if sys.platform == "win32":
    new_loop = asyncio.new_event_loop
else:
    from uvloop import new_event_loop as new_loop

Answer = TypeVar("Answer")

LAST_WORDS = 2.0
"""Seconds that tasks which were left behind get to end, once everything is closed."""


def run(work: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
    """Run to the end, on the fast loop where there is one."""
    runner = asyncio.Runner(loop_factory=new_loop)
    try:
        return runner.run(work())
    except BaseExceptionGroup as group:
        inside = _failures(group)
        raise (inside[0] if len(inside) == 1 else group) from group
    finally:
        _close(runner)


def _close(runner: asyncio.Runner) -> None:
    """Close the loop, unless a task does not end; what is left then ends with the process, at once (`main.run`)."""
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
    """What is inside of groups, which task groups make of everything that passes through them."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    inside = cast("Sequence[BaseException]", error.exceptions)
    return [failure for each in inside for failure in _failures(each)]
