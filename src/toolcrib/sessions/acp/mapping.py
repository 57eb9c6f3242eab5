"""What an agent says, as events of a session: a state machine over the updates of the protocol, without I/O.

Every call is told with its start, then its arguments, then one result, in this order, whatever the agent leaves out or
says in another order: some announce a call when they ask for permission, some when it runs, some not at all. Plans and
lists of commands are not told.

Above: `conversation` and `calls` feed it and emit what it gives. Below: `recognition`. It must never tell a call twice.
"""

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import orjson

from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.model.sessions import SessionEventKind
from toolcrib.model.tools import CallResult, ToolRef
from toolcrib.policy import coding
from toolcrib.sessions.acp.recognition import Recognition, claude_name, parent_of
from toolcrib.sessions.runner import Offered

_ENDED: Final = ("completed", "failed")
_KEPT: Final = ("title", "kind", "rawInput", "rawOutput", "content", "locations", "status")
"""What a later word on a call replaces; the rest counts as it was first said."""


class Emission(NamedTuple):
    """An event to be emitted; `parent` is the call whose sub-agent it happened in."""

    kind: SessionEventKind
    data: JsonObject
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a call as the desk knows it; without a result only how long it took."""

    duration_ms: float
    result: CallResult | None = None


@dataclass(slots=True)
class Call:
    """A call that was told. `said` is what the agent said of it, `offered` the crib's tool that it is of."""

    id: str
    said: JsonObject
    offered: Offered | None = None
    parent: str | None = None
    is_told: bool = False
    """Whether its arguments were told."""
    is_made: bool = False
    """Whether it came in at the endpoint."""
    is_unspoken: bool = False
    """Whether it came in there and the agent has not said a word on it."""
    outcome: Outcome | None = None


@dataclass(slots=True)
class _Open:
    """A text or a thought that is being said."""

    kind: SessionEventKind
    of: Json
    id: str
    said: list[str] = field(default_factory=list[str])


class Mapper:
    """The events of one conversation."""

    def __init__(self, recognition: Recognition) -> None:
        self._recognition = recognition
        self._open: _Open | None = None
        self._calls: dict[str, Call] = {}
        self._done: set[str] = set()
        self._aliases: dict[str, str] = {}
        self._unspoken: list[Offered] = []
        self._messages = 0
        self._prefix = f"msg_{secrets.token_hex(6)}"

    def call(self, id: str) -> Call | None:
        """The call that the agent knows by this id, while it has no result."""
        return self._calls.get(self._aliases.get(id, id))

    def take(self, update: JsonObject) -> list[Emission]:
        """The events that an update stands for."""
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                return list(self._piece("text_delta", update))
            case "agent_thought_chunk":
                return list(self._piece("thinking_delta", update))
            case "tool_call" | "tool_call_update":
                return list(self._update(update))
            case _:
                return []

    def asked(self, announced: JsonObject) -> list[Emission]:
        """The agent asks whether a call may be made, of which it may not have spoken before."""
        emissions = list(self._update(announced))
        call = self.call(str(announced.get("toolCallId")))
        return emissions if call is None else [*emissions, *self._tell(call, self.arguments(call))]

    def own_call(self, call: Call) -> tuple[str, JsonObject]:
        """The agent's own tool that a call is of, and its arguments, as rules know them."""
        tool = self._recognition.own_tool(call.said)
        return tool, self._recognition.own_arguments(tool, call.said)

    def arguments(self, call: Call) -> JsonObject:
        """The arguments of a call, as far as the agent has told them."""
        if call.offered is not None:
            return self._recognition.crib_arguments(call.said.get("rawInput"))
        return self.own_call(call)[1]

    def announced(self, offered: Offered, arguments: JsonObject, *, exactly: bool) -> Call | None:
        """The call that came in at the endpoint, among those that were told and not yet made there."""
        waiting = [call for call in self._calls.values() if call.offered is offered and not call.is_made]
        same = (call for call in waiting if self.arguments(call) == arguments)
        unsaid = (call for call in waiting if not call.is_told and not self.arguments(call))
        return next(same, None) or next(unsaid, None) or (None if exactly else next(iter(waiting), None))

    def make(
        self, call: Call | None, offered: Offered, arguments: JsonObject, name: str
    ) -> tuple[Call, list[Emission]]:
        """A call is made at the endpoint; one that the agent has not spoken of is told now, by its name there."""
        emissions: list[Emission] = []
        if call is None:
            call = Call(f"call_{secrets.token_hex(8)}", {"title": name}, offered, is_unspoken=True)
            emissions += self._start(call)
        call.is_made = True
        return call, [*emissions, *self._tell(call, arguments)]

    def result(self, call: Call) -> list[Emission]:
        """The result of a call that the agent has not spoken of, and may never."""
        if not call.is_unspoken or call.offered is None or self._calls.get(call.id) is not call:
            return []
        self._unspoken.append(call.offered)
        return list(self._end(call))

    def finish(self, why: str) -> list[Emission]:
        """Close what a turn has left open; calls without a result get `why` as theirs."""
        emissions = list(self._close())
        for call in tuple(self._calls.values()):
            emissions += self._tell(call, self.arguments(call))
            call.outcome = call.outcome or Outcome(0.0, CallResult.error(why))
            emissions += self._end(call)
        self._done.clear()
        self._aliases.clear()
        self._unspoken.clear()
        return emissions

    def _piece(self, kind: SessionEventKind, update: JsonObject) -> Iterator[Emission]:
        content: Json = update.get("content")
        text: Json = content.get("text") if is_object(content) else None
        if not isinstance(text, str) or not text:
            return
        of: Json = update.get("messageId")
        if self._open is None or (self._open.kind, self._open.of) != (kind, of):
            yield from self._close()
            self._messages += 1
            self._open = _Open(kind, of, f"{of or self._prefix}.{self._messages}")
        self._open.said.append(text)
        yield Emission(kind, {"messageId": self._open.id, "text": text}, parent_of(update))

    def _close(self) -> Iterator[Emission]:
        said, self._open = self._open, None
        if said is not None and said.kind == "text_delta":
            yield Emission("text_message", {"messageId": said.id, "text": "".join(said.said)})

    def _update(self, update: JsonObject) -> Iterator[Emission]:
        id: Json = update.get("toolCallId")
        if not isinstance(id, str) or id in self._done:
            return
        call = self.call(id)
        if call is None:
            yield from self._close()
            offered = self._recognition.crib_tool(update)
            if offered is not None and self._is_late(id, offered):
                return
            call = Call(id, dict(update), offered, parent_of(update))
            yield from self._start(call)
        else:
            call.said |= {key: update[key] for key in _KEPT if update.get(key) is not None}
        status: Json = call.said.get("status")
        if status in (*_ENDED, "in_progress"):
            yield from self._tell(call, self.arguments(call))
        if status in _ENDED:
            yield from self._end(call)

    def _is_late(self, id: str, offered: Offered) -> bool:
        """Whether this is the agent's first word on a call that it made before, which was told without."""
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

    def _start(self, call: Call) -> Iterator[Emission]:
        self._calls[call.id] = call
        if call.offered is not None:
            ref, name = call.offered.tool.ref, claude_name(call.said) or str(call.said.get("title"))
        else:
            ref = ToolRef(coding.SERVER, self._recognition.own_tool(call.said))
            name = claude_name(call.said) or ref.tool
        data: JsonObject = {"toolCallId": call.id, "toolName": name, "server": ref.server, "tool": ref.tool}
        yield Emission("tool_call_start", data, call.parent)

    def _tell(self, call: Call, arguments: JsonObject) -> Iterator[Emission]:
        if not call.is_told:
            call.is_told = True
            yield Emission("tool_call_end", {"toolCallId": call.id, "arguments": arguments}, call.parent)

    def _end(self, call: Call) -> Iterator[Emission]:
        """The one result of a call: the desk's own where there is one, since agents shorten long ones."""
        del self._calls[call.id]
        self._done |= {call.id, *(id for id, known in self._aliases.items() if known == call.id)}
        outcome = call.outcome or Outcome(0.0)
        result = outcome.result or CallResult(tuple(_blocks(call.said)), call.said.get("status") == "failed")
        data: JsonObject = {
            "toolCallId": call.id,
            "isError": result.is_error,
            "content": list(result.content),
            "durationMs": outcome.duration_ms,
        }
        if result.has_structured:
            data["structuredContent"] = result.structured_content
        yield Emission("tool_result", data, call.parent)


def _blocks(said: JsonObject) -> Iterable[JsonObject]:
    """What a call of the agent's own tool gave, as blocks of content."""
    content: Json = said.get("content")
    blocks = [_block(each) for each in content if is_object(each)] if is_array(content) else []
    found = [block for block in blocks if block is not None]
    output: Json = said.get("rawOutput")
    if found or output is None:
        return found
    text = output if isinstance(output, str) else orjson.dumps(output, default=str).decode()
    return [{"type": "text", "text": text}]


def _block(item: JsonObject) -> JsonObject | None:
    inner: Json = item.get("content")
    if item.get("type") == "content" and is_object(inner):
        return inner
    if item.get("type") == "diff":
        return {"type": "text", "text": f"Changed {item.get('path', 'a file')}."}
    return None
