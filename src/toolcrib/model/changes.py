"""Interface for recording permission changes in the audit log; `gate.audit.changes` implements it.

Components that change permissions require a recorder, so no entry point can skip it.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from toolcrib.model.json import JsonObject

T = TypeVar("T")


class ChangeRecorder(Protocol):
    """Records changes on behalf of the actor of the current request or call."""

    async def record(self, kind: str, changed: JsonObject, work: Callable[[], Awaitable[T]], /) -> T:
        """Run `work` with an audit record before and after it. If the first record fails, `work` does not run."""
        ...

    def noticed(self, kind: str, changed: JsonObject, /) -> None:
        """Record a change made by another program, such as an edited file. Does not block."""
        ...
