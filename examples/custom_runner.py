"""Another runtime for agent sessions: a loop around any model that streams text and wants tools to be called.

`think` is the model: it is given the conversation so far and gives pieces of text and calls. Everything else is the
crib's: which tools there are, whether one may be called, what is on record.

    crib.runners.add(LoopRunner(think))
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

MOST_STEPS = 50


@dataclass(frozen=True)
class Use:
    """A call that the model wants."""

    tool: str
    arguments: JsonObject
    id: str = field(default_factory=lambda: uuid4().hex)


class ModelError(Exception):
    """The model does not answer, and why."""


Think = Callable[[list[JsonObject]], AsyncIterator[str | Use]]


class LoopRunner:
    """A `Runner`. Conversations are kept for as long as it is, to be resumed."""

    name = "loop"

    def __init__(self, think: Think) -> None:
        self._think = think
        self._kept: dict[str, list[JsonObject]] = {}

    @asynccontextmanager
    async def open(self, brief: Brief, host: SessionHost) -> AsyncGenerator["LoopConversation"]:
        """Begin, go on with, or copy a conversation."""
        runtime = brief.resume if brief.resume is not None and not brief.fork else uuid4().hex
        history = list(self._kept.get(brief.resume or "", ()))
        self._kept[runtime] = history
        yield LoopConversation(self._think, brief, host, runtime, history)


class LoopConversation:
    """A `Conversation`: one turn at a time."""

    def __init__(self, think: Think, brief: Brief, host: SessionHost, runtime: str, history: list[JsonObject]) -> None:
        self.runtime = runtime
        self._think = think
        self._brief = brief
        self._host = host
        self._history = history
        self._tools = {f"mcp__{offered.server}__{offered.name}": offered for offered in brief.tools}
        self._turn = anyio.CancelScope()

    async def turn(self, text: str) -> TurnEnd:
        """Answer a prompt: let the model speak, make the calls it wants, and so on until it wants none."""
        self._history.append({"role": "user", "content": text})
        with anyio.CancelScope() as self._turn:
            try:
                return await self._answer()
            except ModelError as error:
                return TurnEnd("failed", self.runtime, failure=Failure("runner.failed", str(error)))
        return TurnEnd("interrupted", self.runtime)

    async def _answer(self) -> TurnEnd:
        steps = self._brief.limits.turns or MOST_STEPS
        for step in range(1, steps + 1):
            uses = await self._speak()
            if not uses:
                return TurnEnd("completed", self.runtime, Spent(turns=step))
            self._history.append({"role": "user", "content": [await self._call(use) for use in uses]})
        limit = Failure("runner.limit", f"The answer took more than {steps} turns and was ended.")
        return TurnEnd("limit", self.runtime, Spent(turns=steps), limit)

    async def _speak(self) -> list[Use]:
        """One answer of the model, told as it comes: text in pieces and then as a whole, each call announced."""
        message, text, uses = uuid4().hex, "", list[Use]()
        async for piece in self._think(self._history):
            if isinstance(piece, Use):
                uses.append(piece)
            else:
                text += piece
                self._host.emit("text_delta", {"messageId": message, "text": piece})
        if text:
            self._host.emit("text_message", {"messageId": message, "text": text})
        for use in uses:
            named = self._named(self._tools.get(use.tool))
            self._host.emit("tool_call_start", {"toolCallId": use.id, "toolName": use.tool, **named})
            self._host.emit("tool_call_end", {"toolCallId": use.id, "arguments": use.arguments})
        said: list[JsonObject] = [{"type": "text", "text": text}] if text else []
        said += [{"type": "tool_use", "id": use.id, "name": use.tool, "input": use.arguments} for use in uses]
        self._history.append({"role": "assistant", "content": said})
        return uses

    async def _call(self, use: Use) -> JsonObject:
        """One call, by the only way there is; a refusal is a result too, which says why."""
        offered, duration = self._tools.get(use.tool), 0.0
        result = CallResult.error(f"There is no tool {use.tool}.")
        if offered is not None:
            called = await self._host.call(offered, use.arguments, use.id)
            result, duration = called.result, called.duration_ms
        told: JsonObject = {"toolCallId": use.id, "isError": result.is_error, "durationMs": duration}
        structured = {"structuredContent": result.structured_content} if result.has_structured else {}
        self._host.emit("tool_result", {**told, "content": list(result.content), **structured})
        return {"type": "tool_result", "tool_use_id": use.id, "content": list(result.content)}

    async def interrupt(self) -> None:
        """End the turn, if there is one."""
        self._turn.cancel()

    async def set_mode(self, mode: Mode) -> None:
        """Modes are the host's business."""

    async def set_model(self, model: str | None) -> None:
        """There is one model only."""

    async def servers(self) -> tuple[ServerHealth, ...]:
        """All of them are there: their tools are called through the host."""
        names = [offered.server for offered in self._brief.tools]
        return tuple(ServerHealth(name, "connected", names.count(name)) for name in dict.fromkeys(names))

    @staticmethod
    def _named(offered: Offered | None) -> JsonObject:
        return {} if offered is None else {"server": offered.server, "tool": offered.name}
