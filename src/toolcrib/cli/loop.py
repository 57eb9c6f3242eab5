"""The event loop of a command.

Above: the commands. It must never let a group of one failure out: what a person is told is the failure itself.
"""

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar, cast

import anyio

Answer = TypeVar("Answer")


def run(work: Callable[[], Awaitable[Answer]]) -> Answer:
    """Run to the end, on the fast loop where there is one."""
    options = {} if sys.platform == "win32" else {"use_uvloop": True}
    try:
        return anyio.run(work, backend_options=options)
    except BaseExceptionGroup as group:
        inside = _failures(group)
        raise (inside[0] if len(inside) == 1 else group) from group


def _failures(error: BaseException) -> list[BaseException]:
    """What is inside of groups, which task groups make of everything that passes through them."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    inside = cast("Sequence[BaseException]", error.exceptions)
    return [failure for each in inside for failure in _failures(each)]
