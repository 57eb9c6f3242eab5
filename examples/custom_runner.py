"""A custom runtime for agent sessions: a loop around any model that streams text and requests tool calls.

`model` receives the conversation so far and yields pieces of text and calls. The crib does the rest: it offers the
tools, decides whether a call is allowed, and records it.

    crib.runners.add(LoopRunner(model))
    async with crib.session(runner="loop") as session: ...
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

import anyio

from toolcrib.agents.sessions.runtime import Brief, Offered, SessionHost
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Mode
from toolcrib.model.sessions import Failure, ServerHealth, Spent, TurnEnd
from toolcrib.model.tools import CallResult

MAX_STEPS = 50


@dataclass(frozen=True)
class ToolUse:
    """A call requested by the model."""

    tool: str
    arguments: JsonObject
    id: str = field(default_factory=lambda: uuid4().hex)


class ModelError(Exception):
    """The model failed to answer; the message is the reason."""


Model = Callable[[list[JsonObject]], AsyncIterator[str | ToolUse]]


class LoopRunner:
    """Implements `Runner`. Keeps conversations in memory, so that they can be resumed."""

    name = "loop"

    def __init__(self, model: Model) -> None:
        self._model = model
        self._histories: dict[str, list[JsonObject]] = {}

    @asynccontextmanager
    async def open(self, brief: Brief, host: SessionHost) -> AsyncGenerator["LoopConversation"]:
        """Start, resume or fork a conversation."""
        runtime = brief.resume if brief.resume is not None and not brief.fork else uuid4().hex
        history = list(self._histories.get(brief.resume or "", ()))
        self._histories[runtime] = history
        yield LoopConversation(self._model, brief, host, runtime, history)


class LoopConversation:
    """Implements `Conversation`: one turn at a time."""

    def __init__(self, model: Model, brief: Brief, host: SessionHost, runtime: str, history: list[JsonObject]) -> None:
        self.runtime = runtime
        self._model = model
        self._brief = brief
        self._host = host
        self._history = history
        self._tools = {f"mcp__{offered.server}__{offered.name}": offered for offered in brief.tools}
        self._turn = anyio.CancelScope()

    async def turn(self, text: str) -> TurnEnd:
        """Answer a prompt. Runs the model and its calls until it requests no more of them."""
        self._history.append({"role": "user", "content": text})
        with anyio.CancelScope() as self._turn:
            try:
                return await self._answer()
            except ModelError as error:
                return TurnEnd("failed", self.runtime, failure=Failure("runner.failed", str(error)))
        return TurnEnd("interrupted", self.runtime)

    async def _answer(self) -> TurnEnd:
        steps = self._brief.limits.turns or MAX_STEPS
        for step in range(1, steps + 1):
            uses = await self._run_model()
            if not uses:
                return TurnEnd("completed", self.runtime, Spent(turns=step))
            self._history.append({"role": "user", "content": [await self._call(use) for use in uses]})
        limit = Failure("runner.limit", f"The answer took more than {steps} turns and was ended.")
        return TurnEnd("limit", self.runtime, Spent(turns=steps), limit)

    async def _run_model(self) -> list[ToolUse]:
        """Run the model once and emit its answer: pieces of text as they arrive, then the whole text and each call."""
        message, text, uses = uuid4().hex, "", list[ToolUse]()
        async for piece in self._model(self._history):
            if isinstance(piece, ToolUse):
                uses.append(piece)
            else:
                text += piece
                self._host.emit("text_delta", {"messageId": message, "text": piece})
        if text:
            self._host.emit("text_message", {"messageId": message, "text": text})
        for use in uses:
            names = self._names_of(self._tools.get(use.tool))
            self._host.emit("tool_call_start", {"toolCallId": use.id, "toolName": use.tool, **names})
            self._host.emit("tool_call_end", {"toolCallId": use.id, "arguments": use.arguments})
        content: list[JsonObject] = [{"type": "text", "text": text}] if text else []
        content += [{"type": "tool_use", "id": use.id, "name": use.tool, "input": use.arguments} for use in uses]
        self._history.append({"role": "assistant", "content": content})
        return uses

    async def _call(self, use: ToolUse) -> JsonObject:
        """Run one call through the host. A refusal is also a result, with its reason."""
        offered, duration = self._tools.get(use.tool), 0.0
        result = CallResult.error(f"There is no tool {use.tool}.")
        if offered is not None:
            called = await self._host.call(offered, use.arguments, use.id)
            result, duration = called.result, called.duration_ms
        ended: JsonObject = {"toolCallId": use.id, "isError": result.is_error, "durationMs": duration}
        structured = {"structuredContent": result.structured_content} if result.has_structured else {}
        self._host.emit("tool_result", {**ended, "content": list(result.content), **structured})
        return {"type": "tool_result", "tool_use_id": use.id, "content": list(result.content)}

    async def interrupt(self) -> None:
        """Cancel the current turn, if there is one."""
        self._turn.cancel()

    async def set_mode(self, mode: Mode) -> None:
        """Do nothing: the host applies modes to its calls."""

    async def set_model(self, model: str | None) -> None:
        """Do nothing: there is only one model."""

    async def servers(self) -> tuple[ServerHealth, ...]:
        """Return every server as connected, because its tools are called through the host."""
        names = [offered.server for offered in self._brief.tools]
        return tuple(ServerHealth(name, "connected", names.count(name)) for name in dict.fromkeys(names))

    @staticmethod
    def _names_of(offered: Offered | None) -> JsonObject:
        return {} if offered is None else {"server": offered.server, "tool": offered.name}
