"""A runtime that plays scripts in-process: no process, API or key. For fast session tests.

It takes the scripts of the scripted model, calls the tools they name and responds like a coding agent. Tools of the
crib are named `mcp__<server>__<tool>`. It executes no tools of its own, but asks for permission as if it did.
"""

import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import httpx2

from toolcrib.agents.sessions.runtime import Brief, Offered, Result, SessionHost
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.principals import Mode
from toolcrib.model.sessions import Failure, ServerHealth, Spent, TurnEnd
from toolcrib.model.tools import CallResult
from toolcrib.testing.scripted_model.reply import ModelReply, ScriptPosition, reply
from toolcrib.testing.scripted_model.script import Refusal, Scripts, ScriptStep, TextStep

QUESTION = "AskUserQuestion"
_NO_PLACE = ScriptPosition(None, 0)
_INTERRUPTED: JsonObject = {"role": "user", "content": "[Request interrupted by user]"}

_History = list[JsonObject]


class PlayedRunner:
    """`PlayedRunner({"s": [step, …]})`: a `Runtime`. Conversations are kept in memory and can be resumed."""

    name: str = "played"

    def __init__(self, scripts: Mapping[str, Json] | None = None, name: str | None = None) -> None:
        self.name = name or self.name
        self.scripts = Scripts(scripts)
        self.ran: list[tuple[str, JsonObject]] = []
        """The runtime's own tools that would have run, with their arguments."""
        self._kept: dict[str, _History] = {}

    @asynccontextmanager
    async def open(self, brief: Brief, host: SessionHost) -> AsyncGenerator["PlayedConversation"]:
        """Start, resume or fork a conversation."""
        runtime = brief.resume if brief.resume is not None and not brief.fork else secrets.token_hex(8)
        history = list(self._kept.get(brief.resume or "", ()))
        self._kept[runtime] = history
        yield PlayedConversation(self, brief, host, runtime, history)


@dataclass(slots=True)
class PlayedConversation:
    """A conversation of the played runtime."""

    runner: PlayedRunner
    brief: Brief
    host: SessionHost
    runtime: str
    _history: _History
    _model: str | None = field(init=False)
    _turn: anyio.CancelScope | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._model = self.brief.model

    @property
    def model(self) -> str | None:
        """The model that scripts see."""
        return self._model or "played"

    @property
    def writes_as(self) -> str | None:
        """The id of the conversation."""
        return self.runtime

    async def turn(self, text: str) -> TurnEnd:
        """Play the script selected by the prompt."""
        self._history.append({"role": "user", "content": text})
        with anyio.CancelScope() as self._turn:
            try:
                return await self._play()
            finally:
                self._turn = None
        self._history.append(_INTERRUPTED)
        return TurnEnd("interrupted", self.runtime)

    async def interrupt(self) -> None:
        """Cancel the turn, if there is one."""
        if self._turn is not None:
            self._turn.cancel()

    async def set_mode(self, mode: Mode) -> None:
        """Do nothing; the `SessionHost` handles modes."""

    async def set_model(self, model: str | None) -> None:
        """Set the model that scripts see."""
        self._model = model

    async def servers(self) -> tuple[ServerHealth, ...]:
        """Return all servers as connected."""
        names = [offered.server for offered in self.brief.tools]
        return tuple(ServerHealth(name, "connected", names.count(name)) for name in dict.fromkeys(names))

    async def _play(self) -> TurnEnd:
        turns = 0
        while self.brief.limits.turns is None or turns < self.brief.limits.turns:
            turns += 1
            said = await self._ask_model()
            if (failure := await self._model_failure(said)) is not None or said.message is None:
                return TurnEnd("failed", self.runtime, Spent(turns=turns), failure)
            await self._stream_message(said.message, said)
            self._history.append({"role": "assistant", "content": said.message["content"]})
            uses: list[JsonObject] = [block for block in said.message["content"] if block["type"] == "tool_use"]
            if not uses:
                return TurnEnd("completed", self.runtime, Spent(0, 10 * turns, 5 * turns, turns))
            self._history.append({"role": "user", "content": [await self._use(use) for use in uses]})
        limit = Failure("runner.limit", f"The turn reached its limit of {self.brief.limits.turns} turns and was ended.")
        return TurnEnd("limit", self.runtime, Spent(turns=turns), limit)

    async def _ask_model(self) -> ModelReply:
        """Return the reply of the scripts, or of the model that the brief names, as if it was a script's."""
        url = self.brief.variables.get("ANTHROPIC_BASE_URL")
        if url is None:
            return reply(self.runner.scripts, self._request())
        request = {key: value for key, value in self._request().items() if key != "at"}
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
            answer = await client.post(f"{url}/v1/messages", json=request)
        message: JsonObject = answer.json()
        if not answer.is_success:
            refusal = Refusal(answer.status_code, "api_error", message["error"]["message"])
            return ModelReply(_NO_PLACE, ScriptStep(refusal=refusal), None)
        return ModelReply(_NO_PLACE, ScriptStep(blocks=(TextStep("answered"),)), message)

    def _request(self) -> JsonObject:
        tools = [{"name": _name(offered)} for offered in self.brief.tools]
        return {"model": self._model or "played", "messages": list(self._history), "tools": tools, "at": self.runtime}

    async def _model_failure(self, said: ModelReply) -> Failure | None:
        await anyio.sleep(said.step.pace.delay_ms / 1000)
        if said.step.hang_s is not None:
            await anyio.sleep(said.step.hang_s)
            return Failure("runner.unreachable", "The model did not answer.")
        refusal = said.step.refusal
        return Failure("runner.failed", refusal.message) if refusal is not None else None

    async def _stream_message(self, message: JsonObject, said: ModelReply) -> None:
        pace = said.step.pace
        for block in message["content"]:
            if block["type"] == "text":
                for at in range(0, len(block["text"]), pace.chunk):
                    piece: str = block["text"][at : at + pace.chunk]
                    self.host.emit("text_delta", {"messageId": message["id"], "text": piece})
                    await anyio.sleep(pace.chunk_delay_ms / 1000)
                self.host.emit("text_message", {"messageId": message["id"], "text": block["text"]})
            elif block["type"] == "thinking":
                self.host.emit("thinking_delta", {"messageId": message["id"], "text": block["thinking"]})
            elif block["type"] == "tool_use":
                self._announce(block)

    def _announce(self, use: JsonObject) -> None:
        offered = self._find_offer(use["name"])
        named: JsonObject = {} if offered is None else {"server": offered.server, "tool": offered.name}
        self.host.emit("tool_call_start", {"toolCallId": use["id"], "toolName": use["name"], **named})
        self.host.emit("tool_call_end", {"toolCallId": use["id"], "arguments": use["input"]})

    async def _use(self, use: JsonObject) -> JsonObject:
        made = await self._call_tool(use["name"], use["input"], use["id"])
        result = made.result
        block_event: JsonObject = {
            "toolCallId": use["id"],
            "isError": result.is_error,
            "content": list(result.content),
            "durationMs": made.duration_ms,
        }
        if result.has_structured:
            block_event["structuredContent"] = result.structured_content
        self.host.emit("tool_result", block_event)
        content = list(made.for_model.content)
        return {"type": "tool_result", "tool_use_id": use["id"], "content": content, "is_error": result.is_error}

    async def _call_tool(self, name: str, arguments: JsonObject, id: str) -> Result:
        offered = self._find_offer(name)
        if offered is not None:
            return await self.host.call(offered, arguments, id)
        return Result(await self._own(name, arguments, id), 0)

    async def _own(self, name: str, arguments: JsonObject, id: str) -> CallResult:
        if name == QUESTION:
            questions: list[Json] = arguments.get("questions", [])
            answers = await self.host.ask([each for each in questions if is_object(each)], id)
            return CallResult.text(str(dict(answers))) if answers else CallResult.error("Nobody answers.")
        if name not in self.brief.own_tools:
            await self.host.refused(name, arguments)
            return CallResult.error(f"There is no tool {name}.")
        permit = await self.host.permit(name, arguments, id)
        if not permit.allowed:
            return permit.instead.result if permit.instead is not None else CallResult.error(permit.reason)
        self.runner.ran.append((name, permit.arguments))
        await self.host.ended(id, is_error=False)
        return CallResult.text(f"{name} has run.")

    def _find_offer(self, name: str) -> Offered | None:
        return next((offered for offered in self.brief.tools if _name(offered) == name), None)


def _name(offered: Offered) -> str:
    return f"mcp__{offered.server}__{offered.name}"
