"""A `SessionHost` for tests of runtimes: records all events and requests in order, and returns configured answers."""

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import anyio

from toolcrib.agents.sessions.runtime import Offered, Permit, Result
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.sessions import SessionEventKind
from toolcrib.model.sources import ReportProgress
from toolcrib.model.tools import CallResult, ToolRef

DURATION_MS = 12.5
"""The duration reported for every call."""


@dataclass(frozen=True, slots=True)
class RecordedEntry:
    """A recorded event or request.

    `what` is the kind of an event, or `call`, `call_done`, `call_cancelled`, `permit`, `permit_cancelled`, `ended` or
    `ask`. `tool_call` is the id of the call it belongs to.
    """

    what: str
    tool_call: str | None
    data: JsonObject
    parent: str | None = None


Handle = Callable[[Offered, JsonObject], Awaitable[CallResult]]


async def pong(offered: Offered, arguments: JsonObject) -> CallResult:
    """Return the same result for every call."""
    return CallResult.text("pong")


class RecordingHost:
    """A recording `SessionHost`. `handle` answers calls of the crib's tools, `permits` permission requests by tool.

    A tool without a permit is denied. `answers` are returned for every question; None means that no answer arrives.
    """

    def __init__(
        self,
        handle: Handle = pong,
        *,
        permits: Mapping[str, Permit] | None = None,
        answers: Mapping[str, str] | None = None,
    ) -> None:
        self.entries: list[RecordedEntry] = []
        self._handle = handle
        self._permits = permits or {}
        self._answers = answers
        self._session = str(uuid.uuid4())
        self._news = anyio.Event()

    def principal(self) -> Principal:
        """Return the principal of a session without an agent."""
        return Principal("session", self._session, "api", session=self._session)

    def emit(self, kind: SessionEventKind, data: JsonObject, parent: str | None = None) -> None:
        """Record an event."""
        about: Json = data.get("toolCallId")
        self._keep(RecordedEntry(kind, about if isinstance(about, str) else None, data, parent))

    async def call(
        self, offered: Offered, arguments: JsonObject, tool_call: str, progress: ReportProgress | None = None
    ) -> Result:
        """Record a call and how it ended."""
        called: JsonObject = {"server": offered.server, "tool": offered.name, "arguments": arguments}
        self._keep(RecordedEntry("call", tool_call, called))
        try:
            result = await self._handle(offered, arguments)
        except anyio.get_cancelled_exc_class():
            self._keep(RecordedEntry("call_cancelled", tool_call, called))
            raise
        self._keep(RecordedEntry("call_done", tool_call, called))
        return Result(result, DURATION_MS)

    async def permit(self, tool: str, arguments: JsonObject, tool_call: str) -> Permit:
        """Record a permission request and return the configured permit."""
        self._keep(RecordedEntry("permit", tool_call, {"tool": tool, "arguments": arguments}))
        return self._permits.get(tool) or Permit(False, arguments, f"{tool} is not permitted here.")

    async def ended(self, tool_call: str, *, is_error: bool) -> None:
        """Record the end of a run."""
        self._keep(RecordedEntry("ended", tool_call, {"isError": is_error}))

    async def refused(self, tool: ToolRef | str, arguments: JsonObject) -> None:
        """Record a call that the runtime denied itself."""
        self._keep(RecordedEntry("refused", None, {"tool": str(tool), "arguments": arguments}))

    async def ask(self, questions: Sequence[JsonObject], tool_call: str) -> Mapping[str, str] | None:
        """Record the questions and return the configured answers."""
        self._keep(RecordedEntry("ask", tool_call, {"questions": list(questions)}))
        return self._answers

    def of(self, *what: str) -> list[RecordedEntry]:
        """Return all entries of these kinds, in order."""
        return [entry for entry in self.entries if entry.what in what]

    def order(self, tool_call: str) -> list[str]:
        """Return the kinds recorded for one call, in order; repeated deltas are collapsed."""
        kinds = [entry.what for entry in self.entries if entry.tool_call == tool_call]
        return [kind for index, kind in enumerate(kinds) if not index or kinds[index - 1] != kind]

    def texts(self) -> list[str]:
        """Return the model's messages."""
        return [str(entry.data["text"]) for entry in self.of("text_message")]

    async def until(self, *what: str) -> RecordedEntry:
        """Wait for the first entry of these kinds and return it."""
        while not (found := self.of(*what)):
            await self._news.wait()
        return found[0]

    def _keep(self, entry: RecordedEntry) -> None:
        self.entries.append(entry)
        news, self._news = self._news, anyio.Event()
        news.set()
