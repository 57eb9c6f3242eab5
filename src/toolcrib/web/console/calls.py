"""Tool calls started by a page: progress, and cancellation when the page is closed.

A call belongs to the request that started it. The page knows its number and can poll its progress or stop it.

Must never let a call continue after its page disconnected.
"""

import re
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from secrets import token_urlsafe
from typing import Final, Literal, TypeAlias

import anyio
from starlette.requests import Request

from toolcrib.model.json import JsonObject
from toolcrib.model.sources import ReportProgress

_NUMBER: Final = re.compile(r"[\w-]{8,40}", re.ASCII)
_MESSAGES: Final = 5
_LENGTH: Final = 500
Work: TypeAlias = Callable[[ReportProgress], Awaitable[JsonObject]]
Ended: TypeAlias = Literal["stopped", "left"]


@dataclass(slots=True)
class RunningCall:
    """A call in flight."""

    began: float = field(default_factory=time.monotonic)
    done: float | None = None
    total: float | None = None
    messages: deque[str] = field(default_factory=lambda: deque[str](maxlen=_MESSAGES))
    ended: Ended | None = None
    _scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    async def report(self, done: float, total: float | None, message: str | None) -> None:
        """Record progress reported by the tool."""
        self.done, self.total = done, total
        if message:
            self.messages.append(message[:_LENGTH])

    async def run(self, request: Request, work: Work) -> JsonObject | None:
        """Run `work`; return None if it was cancelled."""
        done = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._end_when_left, request)
            with self._scope:
                done = await work(self.report)
            tasks.cancel_scope.cancel()
        return done

    def end(self, how: Ended) -> None:
        """Cancel the call."""
        self.ended = how
        self._scope.cancel()

    async def _end_when_left(self, request: Request) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self.end("left")

    def to_json(self) -> JsonObject:
        """Return the progress shown on the page."""
        elapsed = (time.monotonic() - self.began) * 1000
        share = self.done / self.total if self.total and self.done is not None else None
        progress: JsonObject = {"elapsedMs": round(elapsed), "done": self.done, "total": self.total}
        return progress | {"share": share, "messages": list(self.messages)}


class RunningCalls:
    """All calls in flight that a page waits for, by number."""

    def __init__(self) -> None:
        self._running: dict[str, RunningCall] = {}

    @staticmethod
    def number() -> str:
        """Return a number for the next call of a page."""
        return token_urlsafe(12)

    def find(self, number: str) -> RunningCall | None:
        """Return the call with this number while it is in flight, else None."""
        return self._running.get(number)

    async def wait(self, request: Request, number: str, work: Work) -> JsonObject | Ended:
        """Run a call for a request; return its result, or how it was cancelled."""
        running = RunningCall()
        is_known = _NUMBER.fullmatch(number) is not None and self._running.setdefault(number, running) is running
        try:
            return await running.run(request, work) or running.ended or "left"
        finally:
            if is_known:
                del self._running[number]
