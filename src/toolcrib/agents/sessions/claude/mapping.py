"""Converts Claude Code's messages to session events: a state machine over the SDK's messages, without I/O.

Every call emits its start, its arguments and one result, in this order, whatever Claude Code omits. Messages arrive
whole or in pieces, those of sub-agents only whole. An aborted turn leaves texts and calls open; `finish` closes them.

Must never emit a call twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, cast

from claude_agent_sdk import (
    AssistantMessage,
    ContentBlock,
    Message,
    ServerToolResultBlock,
    ServerToolUseBlock,
    StreamEvent,
    SystemMessage,
    TaskStartedMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

from toolcrib.agents.sessions.claude.endings import retrying
from toolcrib.agents.sessions.runtime import Offered
from toolcrib.gate.policy.coding_tools import SERVER
from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.model.sessions import SessionEventKind
from toolcrib.model.tools import CallResult, ToolRef

OWN_NAMES: Final = {"Agent": "Task"}
"""Tools that Claude Code calls by another name than its lists and rules do."""


class ClaudeEmission(NamedTuple):
    """An event to be emitted; `parent` is the call of the sub-agent it happened in."""

    kind: SessionEventKind
    data: JsonObject
    parent: str | None


@dataclass(slots=True)
class _Call:
    name: str
    parent: str | None
    is_announced: bool = False
    """Whether its arguments were emitted."""


@dataclass(slots=True)
class _Open:
    """A text, thought or call that is being streamed."""

    kind: str
    id: str
    pieces: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class ClaudeOutcome:
    """The outcome of a call as known to the host; without a result only its duration."""

    duration_ms: float
    result: CallResult | None = None


class ClaudeMapper:
    """The events of one conversation."""

    def __init__(self, offered: Mapping[str, Offered]) -> None:
        """`offered` are the crib's tools by the model's names for them."""
        self._offered = offered
        self._messages: dict[str | None, str] = {}
        self._open: dict[tuple[str | None, int], _Open] = {}
        self._whole: dict[str, int] = {}
        self._calls: dict[str, _Call] = {}
        self._done: set[str] = set()
        self._outcomes: dict[str, ClaudeOutcome] = {}
        self._agents: dict[str, str] = {}

    def is_announced(self, tool_call: str) -> bool:
        """Return whether start and arguments of this call were emitted in this turn."""
        call = self._calls.get(tool_call)
        return tool_call in self._done or (call is not None and call.is_announced)

    def keep(self, tool_call: str, outcome: ClaudeOutcome) -> None:
        """Store the outcome of a call; the result is emitted once Claude Code reports it."""
        self._outcomes[tool_call] = outcome

    def announce(self, tool_call: str, name: str, arguments: JsonObject, agent: str | None) -> list[ClaudeEmission]:
        """Emit a call unless it was emitted already; `agent` is the sub-agent that makes it."""
        parent = self._agents.get(agent) if agent is not None else None
        return [*self._start(tool_call, name, parent), *self._end(tool_call, arguments)]

    def take(self, message: Message) -> list[ClaudeEmission]:
        """Return the events of a message."""
        if isinstance(message, StreamEvent):
            return self._piece(message.event, message.parent_tool_use_id)
        if isinstance(message, AssistantMessage):
            return self._map_message(message)
        if isinstance(message, UserMessage):
            blocks: Sequence[ContentBlock] = [] if isinstance(message.content, str) else message.content
            results = (block for block in blocks if isinstance(block, ToolResultBlock))
            return [
                each for block in results for each in self._result(block.tool_use_id, block.content, block.is_error)
            ]
        if isinstance(message, TaskStartedMessage):
            if message.tool_use_id is not None:
                self._agents[message.task_id] = message.tool_use_id
        elif isinstance(message, SystemMessage) and message.subtype == "api_retry":
            return [ClaudeEmission("error", retrying(message.data).to_json(), None)]
        return []

    def finish(self, why: str) -> list[ClaudeEmission]:
        """Close all open items of a turn; calls without a result get `why` as an error."""
        emissions = [each for place in tuple(self._open) for each in self._break_off(place)]
        for tool_call in tuple(self._calls):
            emissions += self._result(tool_call, why, True)
        for state in (self._open, self._messages, self._whole, self._done, self._outcomes, self._agents):
            state.clear()
        return emissions

    def _piece(self, event: JsonObject, parent: str | None) -> list[ClaudeEmission]:
        kind: Json = event.get("type")
        if kind == "message_start":
            # Open blocks belong to an abandoned message, whose request is being retried.
            given_up = [place for place in self._open if place[0] == parent]
            self._messages[parent] = event["message"]["id"]
            return [each for place in given_up for each in self._break_off(place)]
        if kind == "content_block_start":
            return self._begin(event["content_block"], (parent, event["index"]))
        if kind == "content_block_delta":
            return self._delta(event["delta"], (parent, event["index"]))
        return []

    def _break_off(self, place: tuple[str | None, int]) -> list[ClaudeEmission]:
        """Close an incomplete block; the text so far becomes the message."""
        block = self._open.pop(place)
        if block.kind != "text" or not block.pieces:
            return []
        return [ClaudeEmission("text_message", {"messageId": block.id, "text": "".join(block.pieces)}, place[0])]

    def _begin(self, block: JsonObject, place: tuple[str | None, int]) -> list[ClaudeEmission]:
        parent, index = place
        kind: Json = block.get("type")
        emissions = self._break_off(place) if place in self._open else []
        if kind in ("text", "thinking"):
            self._open[place] = _Open(kind, f"{self._messages.get(parent, 'msg')}.{index}")
        elif kind in ("tool_use", "server_tool_use"):
            self._open[place] = _Open("call", block["id"])
            emissions += self._start(block["id"], block["name"], parent)
        return emissions

    def _delta(self, delta: JsonObject, place: tuple[str | None, int]) -> list[ClaudeEmission]:
        block = self._open.get(place)
        if block is None:
            return []
        match block.kind, delta.get("type"):
            case "text", "text_delta" if delta["text"]:
                block.pieces.append(delta["text"])
                return [ClaudeEmission("text_delta", {"messageId": block.id, "text": delta["text"]}, place[0])]
            case "thinking", "thinking_delta" if delta["thinking"]:
                return [ClaudeEmission("thinking_delta", {"messageId": block.id, "text": delta["thinking"]}, place[0])]
            case "call", "input_json_delta" if delta["partial_json"] and not self.is_announced(block.id):
                data: JsonObject = {"toolCallId": block.id, "partialJson": delta["partial_json"]}
                return [ClaudeEmission("tool_call_delta", data, place[0])]
            case _:
                return []

    def _map_message(self, message: AssistantMessage) -> list[ClaudeEmission]:
        """Emit whole blocks; each closes its streamed block. Messages of failed requests are not answers."""
        parent = message.parent_tool_use_id
        emissions: list[ClaudeEmission] = []
        for block in message.content if message.error is None else ():
            id = message.message_id or "msg"
            number = self._whole[id] = self._whole.get(id, -1) + 1
            if isinstance(block, TextBlock) and block.text:
                begun = self._close("text", parent)
                data: JsonObject = {"messageId": begun or f"{id}.{number}", "text": block.text}
                emissions.append(ClaudeEmission("text_message", data, parent))
            elif isinstance(block, ThinkingBlock) and block.thinking and self._close("thinking", parent) is None:
                data = {"messageId": f"{id}.{number}", "text": block.thinking}
                emissions.append(ClaudeEmission("thinking_delta", data, parent))
            elif isinstance(block, (ToolUseBlock, ServerToolUseBlock)):
                self._close("call", parent, block.id)
                emissions += self._start(block.id, block.name, parent)
                emissions += self._end(block.id, block.input)
            elif isinstance(block, ServerToolResultBlock):
                emissions += self._result(block.tool_use_id, [block.content], False)
        return emissions

    def _close(self, kind: str, parent: str | None, id: str | None = None) -> str | None:
        """Close the first open block of this kind and return its id; None if it was not streamed."""
        for place, block in self._open.items():
            if place[0] == parent and block.kind == kind and id in (None, block.id):
                del self._open[place]
                return block.id
        return None

    def _start(self, tool_call: str, name: str, parent: str | None) -> list[ClaudeEmission]:
        if tool_call in self._calls or tool_call in self._done:
            return []
        self._calls[tool_call] = _Call(name, parent)
        offered = self._offered.get(name)
        ref = offered.tool.ref if offered is not None else ToolRef(SERVER, OWN_NAMES.get(name, name))
        data: JsonObject = {"toolCallId": tool_call, "toolName": name, "server": ref.server, "tool": ref.tool}
        return [ClaudeEmission("tool_call_start", data, parent)]

    def _end(self, tool_call: str, arguments: JsonObject) -> list[ClaudeEmission]:
        call = self._calls.get(tool_call)
        if call is None or call.is_announced:
            return []
        call.is_announced = True
        return [ClaudeEmission("tool_call_end", {"toolCallId": tool_call, "arguments": arguments}, call.parent)]

    def _result(self, tool_call: str, content: Json, is_error: bool | None) -> list[ClaudeEmission]:
        """Emit the result of a call; prefers the host's, since Claude Code shortens long results."""
        ended = self._end(tool_call, {})
        call = self._calls.pop(tool_call, None)
        if call is None:
            return []
        self._done.add(tool_call)
        outcome = self._outcomes.pop(tool_call, ClaudeOutcome(0.0))
        result = outcome.result or CallResult(tuple(_blocks(content)), is_error is True)
        data: JsonObject = {
            "toolCallId": tool_call,
            "isError": result.is_error,
            "content": list(result.content),
            "durationMs": outcome.duration_ms,
        }
        if result.has_structured:
            data["structuredContent"] = result.structured_content
        return [*ended, ClaudeEmission("tool_result", data, call.parent)]


def _blocks(content: Json) -> Iterable[JsonObject]:
    """Convert the API's content to MCP content blocks; unknown blocks become text."""
    for block in content if is_array(content) else [content]:
        source = block.get("source") if is_object(block) else None
        if is_object(block) and block.get("type") == "text":
            yield {"type": "text", "text": block.get("text", "")}
        elif is_object(source) and source.get("type") == "base64" and cast(JsonObject, block).get("type") == "image":
            yield {"type": "image", "data": source.get("data", ""), "mimeType": source.get("media_type", "")}
        elif is_object(block):
            yield {"type": "text", "text": str(block.get("tool_name") or block.get("type") or "")}
        elif block:
            yield {"type": "text", "text": str(block)}
