"""Converts a session's events to display items: messages, calls with approvals and results, questions, ends of turns.

A view is pure: the same events always produce the same items, in the order in which they started. An item keeps its id
while it grows, so that a client can update it in place. The views of recently read sessions are kept, so that a reader
of a long session only waits for new events.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

import anyio

from toolcrib.model.errors import ToolcribError
from toolcrib.model.json import Json, JsonObject, dumps
from toolcrib.model.sessions import SessionEvent

MOST_VIEWS: Final = 16
MOST_BYTES: Final = 64 * 1024 * 1024
"""Limits of the kept views: how many, and the bytes of all their events."""

ItemKind = Literal["user", "text", "thinking", "call", "question", "error", "done"]


@dataclass(slots=True)
class Item:
    """One item of a conversation. `seq` is the number of the event that last changed it."""

    id: str
    kind: ItemKind
    at: str
    seq: int
    data: JsonObject = field(default_factory=dict[str, Json])
    parent: str | None = None

    def to_json(self) -> JsonObject:
        """Return the public JSON representation."""
        shape: JsonObject = {"id": self.id, "kind": self.kind, "at": self.at, "seq": self.seq, **self.data}
        return shape if self.parent is None else {**shape, "parentToolCallId": self.parent}


class ConversationView:
    """A growing conversation: `take` events in order, then read `items`."""

    def __init__(self) -> None:
        self.status: JsonObject = {}
        self.last = 0
        self.bytes = 0
        """The size of all events taken."""
        self._items: dict[str, Item] = {}
        self._calls_asked: dict[str, str] = {}

    @property
    def items(self) -> tuple[Item, ...]:
        """Return all items in order."""
        return tuple(self._items.values())

    def since(self, seq: int) -> tuple[Item, ...]:
        """Return the items that are new or changed after this event number."""
        return tuple(item for item in self._items.values() if item.seq > seq)

    def take(self, events: Iterable[SessionEvent]) -> "ConversationView":
        """Process further events."""
        for event in events:
            self._take(event)
            self.last = event.seq
            self.bytes += len(dumps(event.data))
        return self

    def _take(self, event: SessionEvent) -> None:
        data = event.data
        match event.kind:
            case "session_status":
                self.status = data
            case "user_message":
                self._put(event, "user", data["messageId"], {"text": data["content"], "queued": data["queued"]})
            case "text_delta" | "thinking_delta" | "text_message":
                self._text(event)
            case "tool_call_start" | "tool_call_delta" | "tool_call_end" | "tool_result":
                self._call(event)
            case "approval_required" | "approval_resolved":
                self._approval(event)
            case "question_prompt" | "question_answered":
                asked = {key: value for key, value in data.items() if key != "questionId"}
                self._put(event, "question", data["questionId"], asked)
            case "error" | "done":
                self._put(event, event.kind, f"{event.kind}-{event.seq}", dict(data))

    def _text(self, event: SessionEvent) -> None:
        kind: ItemKind = "thinking" if event.kind == "thinking_delta" else "text"
        item = self._put(event, kind, f"{kind}-{event.data['messageId']}", {})
        if event.kind == "text_message":
            item.data = {"text": event.data["text"], "isWhole": True}
        else:
            item.data = {"text": f"{item.data.get('text', '')}{event.data['text']}", "isWhole": False}

    def _call(self, event: SessionEvent) -> None:
        data = {key: value for key, value in event.data.items() if key not in ("toolCallId", "partialJson")}
        if event.kind == "tool_result":
            data = {"result": data}
        self._put(event, "call", event.data["toolCallId"], data)

    def _approval(self, event: SessionEvent) -> None:
        id = event.data["approvalId"]
        call = self._calls_asked.setdefault(id, str(event.data.get("toolCallId", id)))
        before: JsonObject = self._items[call].data.get("approval", {}) if call in self._items else {}
        self._put(event, "call", call, {"approval": {**before, **event.data}})

    def _put(self, event: SessionEvent, kind: ItemKind, id: str, data: JsonObject) -> Item:
        item = self._items.get(id)
        if item is None:
            item = self._items[id] = Item(id, kind, event.at, event.seq, {}, event.parent)
        item.data |= data
        item.seq = event.seq
        return item


class _KeptView:
    def __init__(self) -> None:
        self.view = ConversationView()
        self.lock = anyio.Lock()


class ConversationViews:
    """The views of recently read sessions. `read` yields the events of a session after a number."""

    def __init__(
        self,
        read: Callable[[str, int], AsyncIterator[SessionEvent]],
        *,
        most_views: int = MOST_VIEWS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._read = read
        self._most_views = most_views
        self._most_bytes = most_bytes
        self._kept: OrderedDict[str, _KeptView] = OrderedDict()

    async def get(self, session: str) -> ConversationView:
        """Return the current view of a session. Reads only the events that a kept view does not have yet."""
        kept = self._kept.setdefault(session, _KeptView())
        self._kept.move_to_end(session)
        try:
            async with kept.lock:
                async for event in self._read(session, kept.view.last):
                    kept.view.take((event,))
        except ToolcribError:
            self.drop(session)
            raise
        self._evict()
        return kept.view

    def drop(self, session: str) -> None:
        """Forget the view of a session."""
        self._kept.pop(session, None)

    def _evict(self) -> None:
        total = sum(kept.view.bytes for kept in self._kept.values())
        while self._kept and (len(self._kept) > self._most_views or total > self._most_bytes):
            _, evicted = self._kept.popitem(last=False)
            total -= evicted.view.bytes
