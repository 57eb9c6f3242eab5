"""Calls that a page waits for: how far they have come, and that they end when the page is left.

A call belongs to the request that began it. The page that sent it knows its number, may ask meanwhile what the tool
tells, and may stop it; whoever leaves the page ends it too.

Above: the screen of a tool. Below: the request. It must never let a call go on for nobody.
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
class Running:
    """One call under way."""

    began: float = field(default_factory=time.monotonic)
    done: float | None = None
    total: float | None = None
    messages: deque[str] = field(default_factory=lambda: deque[str](maxlen=_MESSAGES))
    ended: Ended | None = None
    _scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)

    async def report(self, done: float, total: float | None, message: str | None) -> None:
        """The tool tells how far it is."""
        self.done, self.total = done, total
        if message:
            self.messages.append(message[:_LENGTH])

    async def run(self, request: Request, work: Work) -> JsonObject | None:
        """Do the work; None if it was ended before it was done."""
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
        """For the page."""
        elapsed = (time.monotonic() - self.began) * 1000
        share = self.done / self.total if self.total and self.done is not None else None
        told: JsonObject = {"elapsedMs": round(elapsed), "done": self.done, "total": self.total}
        return told | {"share": share, "messages": list(self.messages)}


class Calls:
    """All calls that pages wait for, by number."""

    def __init__(self) -> None:
        self._running: dict[str, Running] = {}

    @staticmethod
    def number() -> str:
        """A number for the next call of a page."""
        return token_urlsafe(12)

    def find(self, number: str) -> Running | None:
        """The call of this number, while it runs."""
        return self._running.get(number)

    async def wait(self, request: Request, number: str, work: Work) -> JsonObject | Ended:
        """Do a call for a request, or tell how it was ended before it was done."""
        running = Running()
        is_known = _NUMBER.fullmatch(number) is not None and self._running.setdefault(number, running) is running
        try:
            return await running.run(request, work) or running.ended or "left"
        finally:
            if is_known:
                del self._running[number]
