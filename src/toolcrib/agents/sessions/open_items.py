"""Finds what an interrupted turn left open in a session's events, and creates the events that close it. Pure.

Readers rely on every text being completed, every call having a result, and every request to a person being closed. A
crib that is killed cannot do this, so the next one does.

Must never close an item twice.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from toolcrib.model.json import JsonObject
from toolcrib.model.sessions import SessionEvent, SessionEventKind


class End(NamedTuple):
    """A closing event; `parent` is the call of the sub-agent it belongs to."""

    kind: SessionEventKind
    data: JsonObject
    parent: str | None = None


_OPENS: Final[Mapping[SessionEventKind, str]] = {
    "text_delta": "messageId",
    "tool_call_start": "toolCallId",
    "approval_required": "approvalId",
    "question_prompt": "questionId",
}
"""Opening events, with the member that identifies the item."""
_CLOSES: Final[Mapping[SessionEventKind, SessionEventKind]] = {
    "text_message": "text_delta",
    "tool_result": "tool_call_start",
    "approval_resolved": "approval_required",
    "question_answered": "question_prompt",
}
"""Closing events, with the event that opened the item."""
_NO_EFFECT: Final[frozenset[SessionEventKind]] = frozenset({"user_message", "session_status", "done"})
"""Events that a turn has before its runtime does anything, or after it."""


class OpenItems:
    """Tracks open items: `take` events in order, then `closing_events` yields the events that close the last turn."""

    def __init__(self) -> None:
        self._open: dict[SessionEventKind, dict[str, SessionEvent]] = {kind: {} for kind in _OPENS}
        self._texts: dict[str, str] = {}
        self._complete_calls: set[str] = set()
        self.unanswered: list[SessionEvent] = []
        """The prompts without an answer: the interrupted one, then those queued behind it."""
        self.has_begun = False
        """Whether the interrupted turn had any effect that readers have seen."""

    @property
    def waiting(self) -> int:
        """Return the number of prompts queued behind the interrupted one."""
        return max(0, len(self.unanswered) - 1)

    def take(self, events: Iterable[SessionEvent]) -> None:
        """Process further events."""
        for event in events:
            self._take(event)

    def _take(self, event: SessionEvent) -> None:
        kind, data = event.kind, event.data
        if kind in _OPENS:
            self._open[kind].setdefault(data[_OPENS[kind]], event)
        elif kind in _CLOSES:
            opened = _CLOSES[kind]
            self._open[opened].pop(data[_OPENS[opened]], None)
        if kind == "text_delta":
            self._texts[data["messageId"]] = f"{self._texts.get(data['messageId'], '')}{data['text']}"
        elif kind == "tool_call_end":
            self._complete_calls.add(data["toolCallId"])
        elif kind == "user_message":
            self.unanswered = [*self.unanswered, event] if data["queued"] else [event]
            self.has_begun = self.has_begun and data["queued"]
        elif kind == "done":
            self.unanswered = self.unanswered[1:]
            self.has_begun = False
            for kept in (*self._open.values(), self._texts, self._complete_calls):
                kept.clear()
        if kind not in _NO_EFFECT:
            self.has_begun = True

    def closing_events(self, why: str) -> Iterator[End]:
        """Yield the closing events in the order readers rely on; `why` becomes the result of open calls."""
        calls = self._open["tool_call_start"]
        for id, event in self._open["text_delta"].items():
            yield End("text_message", {"messageId": id, "text": self._texts[id]}, event.parent)
        for id, event in calls.items():
            if id not in self._complete_calls:
                yield End("tool_call_end", {"toolCallId": id, "arguments": {}}, event.parent)
        for id in self._open["approval_required"]:
            yield End("approval_resolved", {"approvalId": id, "decision": "expired", "reason": why})
        for id in self._open["question_prompt"]:
            yield End("question_answered", {"questionId": id, "answers": {}})
        for id, event in calls.items():
            content: JsonObject = {"content": [{"type": "text", "text": why}]}
            yield End("tool_result", {"toolCallId": id, "isError": True, **content, "durationMs": 0.0}, event.parent)
