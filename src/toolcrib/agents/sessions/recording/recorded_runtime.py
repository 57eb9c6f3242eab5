"""Records a session while it runs: its runtime's requests to the model, its prompts, and the results of its calls.

The runtime is the real one. Its model is reached through a recording endpoint, and its host through one that takes note
of every answer.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from toolcrib.agents.sessions.recording.recording import (
    RecordedToolCall,
    RecordingWriter,
    masked_members,
    places_of,
)
from toolcrib.agents.sessions.runtime import (
    Brief,
    Conversation,
    Offered,
    Permit,
    Result,
    Runtime,
    SessionHost,
)
from toolcrib.base.lazy_modules import lazy_module
from toolcrib.base.network.web import Web
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Mode, Principal
from toolcrib.model.sessions import ServerHealth, SessionEventKind, TurnEnd
from toolcrib.model.sources import ReportProgress
from toolcrib.model.tools import CallResult, ToolRef

if TYPE_CHECKING:
    from toolcrib.agents.sessions.recording import model_endpoint, model_requests
else:
    model_endpoint = lazy_module("toolcrib.agents.sessions.recording.model_endpoint")
    model_requests = lazy_module("toolcrib.agents.sessions.recording.model_requests")

MODEL_URL = "ANTHROPIC_BASE_URL"
MODEL_KEY = "ANTHROPIC_API_KEY"


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """How models are reached: the variables of the crib, its HTTP client, and the user's home directory."""

    environment: Mapping[str, str]
    web: Web
    user_home: str

    @property
    def url(self) -> str:
        """The URL of the model's API."""
        return self.environment.get(MODEL_URL) or model_endpoint.DEFAULT_MODEL_URL


class RecordedRuntime:
    """A runtime whose conversations are recorded."""

    def __init__(self, runtime: Runtime, writer: RecordingWriter, access: ModelAccess) -> None:
        self.name = runtime.name
        self._runtime = runtime
        self._writer = writer
        self._access = access

    @asynccontextmanager
    async def open(self, brief: Brief, host: SessionHost) -> AsyncGenerator[Conversation]:
        """Open a conversation whose model is reached through a recording endpoint."""
        home = self._access.user_home
        self._writer.open(brief, self.name, home)
        traffic = RecordedTraffic(self._writer, places_of(brief.cwd, home))
        async with model_endpoint.model_endpoint(traffic, self._access.url, self._access.web) as url:
            reached = replace(brief, variables={**brief.variables, MODEL_URL: url})
            async with self._runtime.open(reached, RecordedHost(host, self._writer)) as conversation:
                yield RecordedConversation(conversation, self._writer)


class RecordedTraffic:
    """Passes every request on, and records the answers."""

    def __init__(self, writer: RecordingWriter, places: Mapping[str, str]) -> None:
        self._writer = writer
        self._places = places

    def answer(self, request: JsonObject) -> None:
        """Pass the request on."""

    def answered(self, request: JsonObject, message: JsonObject, duration_ms: float) -> None:
        """Record the answer."""
        masked = masked_members(request, self._writer.mask)
        self._writer.answer(model_requests.request_key(masked, self._places), message, duration_ms)


class WrappedConversation:
    """A conversation in another runtime."""

    def __init__(self, inner: Conversation) -> None:
        self._inner = inner

    @property
    def runtime(self) -> str | None:
        """Return the id with which it can be resumed."""
        return self._inner.runtime

    @property
    def model(self) -> str | None:
        """Return the model in use, if known."""
        return getattr(self._inner, "model", None)

    @property
    def writes_as(self) -> str | None:
        """Return the id of its transcript, if known."""
        return getattr(self._inner, "writes_as", None)

    async def turn(self, text: str) -> TurnEnd:
        """Answer a prompt."""
        return await self._inner.turn(text)

    async def interrupt(self) -> None:
        """Interrupt the running turn."""
        await self._inner.interrupt()

    async def set_mode(self, mode: Mode) -> None:
        """Switch to this mode."""
        await self._inner.set_mode(mode)

    async def set_model(self, model: str | None) -> None:
        """Switch to this model."""
        await self._inner.set_model(model)

    async def servers(self) -> tuple[ServerHealth, ...]:
        """Return the runtime's view of the servers."""
        return await self._inner.servers()


class RecordedConversation(WrappedConversation):
    """Records prompts."""

    def __init__(self, inner: Conversation, writer: RecordingWriter) -> None:
        super().__init__(inner)
        self._writer = writer

    async def turn(self, text: str) -> TurnEnd:
        """Record the prompt and answer it."""
        self._writer.prompt(text)
        return await self._inner.turn(text)


class RecordedHost:
    """Records the answers of a host to its runtime."""

    def __init__(self, host: SessionHost, writer: RecordingWriter) -> None:
        self._host = host
        self._writer = writer
        self._own: dict[str, tuple[str, JsonObject]] = {}

    def principal(self) -> Principal:
        """Return the session's current principal."""
        return self._host.principal()

    def emit(self, kind: SessionEventKind, data: JsonObject, parent: str | None = None) -> None:
        """Report an event; the result of a tool of the runtime itself is only known from it."""
        if kind == "tool_result" and (own := self._own.pop(str(data.get("toolCallId")), None)) is not None:
            result = {key: data[key] for key in ("content", "isError", "structuredContent") if key in data}
            call = RecordedToolCall(str(data["toolCallId"]), *own, result, float(data.get("durationMs") or 0.0))
            self._writer.call("own_call", call)
        self._host.emit(kind, data, parent)

    async def call(
        self, offered: Offered, arguments: JsonObject, tool_call: str, progress: ReportProgress | None = None
    ) -> Result:
        """Call a tool and record the result as the model gets it."""
        made = await self._host.call(offered, arguments, tool_call, progress)
        result = made.for_model.to_json()
        call = RecordedToolCall(tool_call, str(offered.tool.ref), arguments, result, made.duration_ms)
        self._writer.call("call", call)
        return made

    async def permit(self, tool: str, arguments: JsonObject, tool_call: str) -> Permit:
        """Decide on a tool of the runtime itself; its result arrives as an event."""
        permit = await self._host.permit(tool, arguments, tool_call)
        if permit.allowed:
            self._own[tool_call] = (tool, arguments)
        else:
            refused = CallResult.error(permit.reason).to_json()
            self._writer.call("own_call", RecordedToolCall(tool_call, tool, arguments, refused, 0.0, permit.reason))
        return permit

    async def ended(self, tool_call: str, *, is_error: bool) -> None:
        """Report that a permitted own tool has ended."""
        await self._host.ended(tool_call, is_error=is_error)

    async def refused(self, tool: ToolRef | str, arguments: JsonObject) -> None:
        """Record a call that the runtime refused itself."""
        await self._host.refused(tool, arguments)

    async def ask(self, questions: Sequence[JsonObject], tool_call: str) -> Mapping[str, str] | None:
        """Ask the person, and record the answers."""
        answers = await self._host.ask(questions, tool_call)
        self._writer.ask(list(questions), answers)
        return answers
