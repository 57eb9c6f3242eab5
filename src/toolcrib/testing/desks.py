"""A desk for tests of runners: keeps all that a runtime tells and asks, in order, and answers as the test wants.

Above: `runners`, and tests of one's own runner. Below: the port in `sessions.runner`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import anyio

from toolcrib.model.json import Json, JsonObject
from toolcrib.model.sessions import SessionEventKind
from toolcrib.model.sources import ReportProgress
from toolcrib.model.tools import CallResult
from toolcrib.sessions.runner import Offered, Permit, Result

DURATION_MS = 12.5
"""How long every call took, as the desk says."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that came to the desk.

    `what` is the kind of an event, or `call`, `call_done`, `call_cancelled`, `permit`, `permit_cancelled`, `ended` or
    `ask`. `tool_call` is the call it is about.
    """

    what: str
    tool_call: str | None
    data: JsonObject
    parent: str | None = None


Handle = Callable[[Offered, JsonObject], Awaitable[CallResult]]


async def pong(offered: Offered, arguments: JsonObject) -> CallResult:
    """Answer every call alike."""
    return CallResult.text("pong")


class RecordingDesk:
    """A `Desk`. `handle` answers calls of the crib's tools; `permits` says what is said to the runtime's own, by tool.

    A tool without a permit is refused. `answers` are given to every question; None means that nobody answers.
    """

    def __init__(
        self,
        handle: Handle = pong,
        *,
        permits: Mapping[str, Permit] | None = None,
        answers: Mapping[str, str] | None = None,
    ) -> None:
        self.entries: list[Entry] = []
        self._handle = handle
        self._permits = permits or {}
        self._answers = answers
        self._news = anyio.Event()

    def emit(self, kind: SessionEventKind, data: JsonObject, parent: str | None = None) -> None:
        """Keep an event."""
        about: Json = data.get("toolCallId")
        self._keep(Entry(kind, about if isinstance(about, str) else None, data, parent))

    async def call(
        self, offered: Offered, arguments: JsonObject, tool_call: str, progress: ReportProgress | None = None
    ) -> Result:
        """Keep a call, and how it ended."""
        called: JsonObject = {"server": offered.server, "tool": offered.name, "arguments": arguments}
        self._keep(Entry("call", tool_call, called))
        try:
            result = await self._handle(offered, arguments)
        except anyio.get_cancelled_exc_class():
            self._keep(Entry("call_cancelled", tool_call, called))
            raise
        self._keep(Entry("call_done", tool_call, called))
        return Result(result, DURATION_MS)

    async def permit(self, tool: str, arguments: JsonObject, tool_call: str) -> Permit:
        """Keep what was asked for."""
        self._keep(Entry("permit", tool_call, {"tool": tool, "arguments": arguments}))
        return self._permits.get(tool) or Permit(False, arguments, f"{tool} is not permitted here.")

    async def ended(self, tool_call: str, *, is_error: bool) -> None:
        """Keep that a run has ended."""
        self._keep(Entry("ended", tool_call, {"isError": is_error}))

    async def ask(self, questions: Sequence[JsonObject], tool_call: str) -> Mapping[str, str] | None:
        """Keep the questions."""
        self._keep(Entry("ask", tool_call, {"questions": list(questions)}))
        return self._answers

    def of(self, *what: str) -> list[Entry]:
        """All entries of these kinds, in order."""
        return [entry for entry in self.entries if entry.what in what]

    def order(self, tool_call: str) -> list[str]:
        """What came about one call, in order; deltas count once."""
        kinds = [entry.what for entry in self.entries if entry.tool_call == tool_call]
        return [kind for index, kind in enumerate(kinds) if not index or kinds[index - 1] != kind]

    def texts(self) -> list[str]:
        """What the model said, one text per message."""
        return [str(entry.data["text"]) for entry in self.of("text_message")]

    async def until(self, *what: str) -> Entry:
        """Wait for the first entry of these kinds."""
        while not (found := self.of(*what)):
            await self._news.wait()
        return found[0]

    def _keep(self, entry: Entry) -> None:
        self.entries.append(entry)
        news, self._news = self._news, anyio.Event()
        news.set()
