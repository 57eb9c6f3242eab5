"""Converts an agent's updates to session events: a state machine over the protocol's updates, without I/O.

Every call emits its start, its arguments and one result, in this order, whatever the agent omits or reorders: some
announce a call with the permission request, some when it runs, some not at all. Plans and command lists are ignored.

Must never emit a call twice.
"""

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from toolcrib.agents.sessions.acp.recognition import Recognition, claude_name, parent_of
from toolcrib.agents.sessions.runtime import Offered
from toolcrib.gate.policy import coding_tools
from toolcrib.model.json import Json, JsonObject, dumps, is_array, is_object
from toolcrib.model.sessions import SessionEventKind
from toolcrib.model.tools import CallResult, ToolRef

_ENDED: Final = ("completed", "failed")
_KEPT: Final = ("title", "kind", "rawInput", "rawOutput", "content", "locations", "status")
"""Fields that later updates of a call replace; the others keep their first value."""


class AcpEmission(NamedTuple):
    """An event to be emitted; `parent` is the call of the sub-agent it happened in."""

    kind: SessionEventKind
    data: JsonObject
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class AcpOutcome:
    """The outcome of a call as known to the host; without a result only its duration."""

    duration_ms: float
    result: CallResult | None = None


@dataclass(slots=True)
class AcpCall:
    """An emitted call. `fields` are the agent's fields for it, `offered` the crib's tool, if it is one."""

    id: str
    fields: JsonObject
    offered: Offered | None = None
    parent: str | None = None
    is_announced: bool = False
    """Whether its arguments were emitted."""
    is_made: bool = False
    """Whether it arrived at the endpoint."""
    is_unspoken: bool = False
    """Whether it arrived there without any announcement by the agent so far."""
    outcome: AcpOutcome | None = None


@dataclass(slots=True)
class _Open:
    """A text or thought that is being streamed."""

    kind: SessionEventKind
    of: Json
    id: str
    pieces: list[str] = field(default_factory=list[str])


class AcpMapper:
    """The events of one conversation."""

    def __init__(self, recognition: Recognition) -> None:
        self._recognition = recognition
        self._open: _Open | None = None
        self._calls: dict[str, AcpCall] = {}
        self._done: set[str] = set()
        self._aliases: dict[str, str] = {}
        self._unspoken: list[Offered] = []
        self._messages = 0
        self._prefix = f"msg_{secrets.token_hex(6)}"

    def call(self, id: str) -> AcpCall | None:
        """Return the call with this id if it has no result yet."""
        return self._calls.get(self._aliases.get(id, id))

    def take(self, update: JsonObject) -> list[AcpEmission]:
        """Return the events of an update."""
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                return list(self._piece("text_delta", update))
            case "agent_thought_chunk":
                return list(self._piece("thinking_delta", update))
            case "tool_call" | "tool_call_update":
                return list(self._update(update))
            case _:
                return []

    def asked(self, announced: JsonObject) -> list[AcpEmission]:
        """Return the events of a permission request, whose call may not have been announced before."""
        emissions = list(self._update(announced))
        call = self.call(str(announced.get("toolCallId")))
        return emissions if call is None else [*emissions, *self._end_arguments(call, self.arguments(call))]

    def own_call(self, call: AcpCall) -> tuple[str, JsonObject]:
        """Return the agent's own tool of a call, and its arguments, as rules name them."""
        tool = self._recognition.own_tool(call.fields)
        return tool, self._recognition.own_arguments(tool, call.fields)

    def arguments(self, call: AcpCall) -> JsonObject:
        """Return the arguments of a call, as far as the agent has sent them."""
        if call.offered is not None:
            return self._recognition.crib_arguments(call.fields.get("rawInput"))
        return self.own_call(call)[1]

    def announced(self, offered: Offered, arguments: JsonObject, *, exactly: bool) -> AcpCall | None:
        """Return the announced call that matches one at the endpoint, among those that have not arrived yet."""
        waiting = [call for call in self._calls.values() if call.offered is offered and not call.is_made]
        same = (call for call in waiting if self.arguments(call) == arguments)
        unannounced = (call for call in waiting if not call.is_announced and not self.arguments(call))
        return next(same, None) or next(unannounced, None) or (None if exactly else next(iter(waiting), None))

    def make(
        self, call: AcpCall | None, offered: Offered, arguments: JsonObject, name: str
    ) -> tuple[AcpCall, list[AcpEmission]]:
        """Mark a call as arrived at the endpoint; emit an unannounced one under its name there."""
        emissions: list[AcpEmission] = []
        if call is None:
            call = AcpCall(f"call_{secrets.token_hex(8)}", {"title": name}, offered, is_unspoken=True)
            emissions += self._start(call)
        call.is_made = True
        return call, [*emissions, *self._end_arguments(call, arguments)]

    def result(self, call: AcpCall) -> list[AcpEmission]:
        """Return the result of an unannounced call, which the agent may never announce."""
        if not call.is_unspoken or call.offered is None or self._calls.get(call.id) is not call:
            return []
        self._unspoken.append(call.offered)
        return list(self._end(call))

    def finish(self, why: str) -> list[AcpEmission]:
        """Close all open items of a turn; calls without a result get `why` as an error."""
        emissions = list(self._close())
        for call in tuple(self._calls.values()):
            emissions += self._end_arguments(call, self.arguments(call))
            call.outcome = call.outcome or AcpOutcome(0.0, CallResult.error(why))
            emissions += self._end(call)
        self._done.clear()
        self._aliases.clear()
        self._unspoken.clear()
        return emissions

    def _piece(self, kind: SessionEventKind, update: JsonObject) -> Iterator[AcpEmission]:
        content: Json = update.get("content")
        text: Json = content.get("text") if is_object(content) else None
        if not isinstance(text, str) or not text:
            return
        of: Json = update.get("messageId")
        if self._open is None or (self._open.kind, self._open.of) != (kind, of):
            yield from self._close()
            self._messages += 1
            self._open = _Open(kind, of, f"{of or self._prefix}.{self._messages}")
        self._open.pieces.append(text)
        yield AcpEmission(kind, {"messageId": self._open.id, "text": text}, parent_of(update))

    def _close(self) -> Iterator[AcpEmission]:
        message, self._open = self._open, None
        if message is not None and message.kind == "text_delta":
            yield AcpEmission("text_message", {"messageId": message.id, "text": "".join(message.pieces)})

    def _update(self, update: JsonObject) -> Iterator[AcpEmission]:
        id: Json = update.get("toolCallId")
        if not isinstance(id, str) or id in self._done:
            return
        call = self.call(id)
        if call is None:
            yield from self._close()
            offered = self._recognition.crib_tool(update)
            if offered is not None and self._is_late(id, offered):
                return
            call = AcpCall(id, dict(update), offered, parent_of(update))
            yield from self._start(call)
        else:
            call.fields |= {key: update[key] for key in _KEPT if update.get(key) is not None}
        status: Json = call.fields.get("status")
        if status in (*_ENDED, "in_progress"):
            yield from self._end_arguments(call, self.arguments(call))
        if status in _ENDED:
            yield from self._end(call)

    def _is_late(self, id: str, offered: Offered) -> bool:
        """Return whether this is the late announcement of a call that was already emitted."""
        for call in self._calls.values():
            if call.offered is offered and call.is_unspoken:
                call.is_unspoken = False
                self._aliases[id] = call.id
                return True
        if offered in self._unspoken:
            self._unspoken.remove(offered)
            self._done.add(id)
            return True
        return False

    def _start(self, call: AcpCall) -> Iterator[AcpEmission]:
        self._calls[call.id] = call
        if call.offered is not None:
            ref, name = call.offered.tool.ref, claude_name(call.fields) or str(call.fields.get("title"))
        else:
            ref = ToolRef(coding_tools.SERVER, self._recognition.own_tool(call.fields))
            name = claude_name(call.fields) or ref.tool
        data: JsonObject = {"toolCallId": call.id, "toolName": name, "server": ref.server, "tool": ref.tool}
        yield AcpEmission("tool_call_start", data, call.parent)

    def _end_arguments(self, call: AcpCall, arguments: JsonObject) -> Iterator[AcpEmission]:
        if not call.is_announced:
            call.is_announced = True
            yield AcpEmission("tool_call_end", {"toolCallId": call.id, "arguments": arguments}, call.parent)

    def _end(self, call: AcpCall) -> Iterator[AcpEmission]:
        """Emit the result of a call; prefers the host's, since agents shorten long results."""
        del self._calls[call.id]
        self._done |= {call.id, *(id for id, known in self._aliases.items() if known == call.id)}
        outcome = call.outcome or AcpOutcome(0.0)
        result = outcome.result or CallResult(tuple(_blocks(call.fields)), call.fields.get("status") == "failed")
        data: JsonObject = {
            "toolCallId": call.id,
            "isError": result.is_error,
            "content": list(result.content),
            "durationMs": outcome.duration_ms,
        }
        if result.has_structured:
            data["structuredContent"] = result.structured_content
        yield AcpEmission("tool_result", data, call.parent)


def _blocks(fields: JsonObject) -> Iterable[JsonObject]:
    """Return the output of the agent's own tool as content blocks."""
    content: Json = fields.get("content")
    blocks = [_block(each) for each in content if is_object(each)] if is_array(content) else []
    found = [block for block in blocks if block is not None]
    output: Json = fields.get("rawOutput")
    if found or output is None:
        return found
    text = output if isinstance(output, str) else dumps(output, default=str).decode()
    return [{"type": "text", "text": text}]


def _block(item: JsonObject) -> JsonObject | None:
    inner: Json = item.get("content")
    if item.get("type") == "content" and is_object(inner):
        return inner
    if item.get("type") == "diff":
        return {"type": "text", "text": f"Changed {item.get('path', 'a file')}."}
    return None
