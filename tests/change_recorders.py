"""A recorder of changes for tests of parts that have no audit. It makes each change and keeps its description."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from toolcrib.model.json import JsonObject

T = TypeVar("T")


class Unrecorded:
    """Implements `audit.Changes` in memory."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, JsonObject]] = []

    async def record(self, kind: str, changed: JsonObject, work: Callable[[], Awaitable[T]], /) -> T:
        """Keep the change and make it."""
        self.changes.append((kind, changed))
        return await work()

    def noticed(self, kind: str, changed: JsonObject, /) -> None:
        """Keep the change."""
        self.changes.append((kind, changed))
