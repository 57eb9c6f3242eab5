"""What a turn that broke off has left open in a session's record, and the events that close it.

Readers rely on it that every text comes whole, that every call has a result, and that whoever was asked is told when
the question is over. When a crib is killed nobody can say so; the next one does.

Above: the manager. Below: `model`. Pure. It must never close what is closed: readers would see it end twice.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from toolcrib.model.json import JsonObject
from toolcrib.model.sessions import SessionEvent, SessionEventKind


class End(NamedTuple):
    """An event that closes something; `parent` is the call whose sub-agent it belongs to."""

    kind: SessionEventKind
    data: JsonObject
    parent: str | None = None


class LooseEnds:
    """`take` the events of a session in order; `tied` gives what closes those of its last turn."""

    def __init__(self) -> None:
        self._texts: dict[str, SessionEvent] = {}
        self._said: dict[str, str] = {}
        self._calls: dict[str, SessionEvent] = {}
        self._untold: dict[str, SessionEvent] = {}
        self._approvals: dict[str, SessionEvent] = {}
        self._questions: dict[str, SessionEvent] = {}

    def take(self, events: Iterable[SessionEvent]) -> None:
        """Go on with these."""
        for event in events:
            self._take(event)

    def _take(self, event: SessionEvent) -> None:
        data = event.data
        match event.kind:
            case "text_delta":
                id = data["messageId"]
                self._texts.setdefault(id, event)
                self._said[id] = f"{self._said.get(id, '')}{data['text']}"
            case "text_message":
                self._texts.pop(data["messageId"], None)
            case "tool_call_start":
                self._calls[data["toolCallId"]] = self._untold[data["toolCallId"]] = event
            case "tool_call_end":
                self._untold.pop(data["toolCallId"], None)
            case "tool_result":
                self._calls.pop(data["toolCallId"], None)
            case "approval_required":
                self._approvals[data["approvalId"]] = event
            case "approval_resolved":
                self._approvals.pop(data["approvalId"], None)
            case "question_prompt":
                self._questions[data["questionId"]] = event
            case "question_answered":
                self._questions.pop(data["questionId"], None)
            case "done":
                self._forget()
            case _:
                pass

    def _forget(self) -> None:
        for kept in (self._texts, self._said, self._calls, self._untold, self._approvals, self._questions):
            kept.clear()

    def tied(self, why: str) -> Iterator[End]:
        """What closes all that is open, in the order that readers rely on; `why` is what calls get as their result."""
        for id, event in self._texts.items():
            yield End("text_message", {"messageId": id, "text": self._said[id]}, event.parent)
        for id, event in self._untold.items():
            yield End("tool_call_end", {"toolCallId": id, "arguments": {}}, event.parent)
        for id in self._approvals:
            yield End("approval_resolved", {"approvalId": id, "decision": "expired", "reason": why})
        for id in self._questions:
            yield End("question_answered", {"questionId": id, "answers": {}})
        for id, event in self._calls.items():
            content: JsonObject = {"content": [{"type": "text", "text": why}]}
            yield End("tool_result", {"toolCallId": id, "isError": True, **content, "durationMs": 0.0}, event.parent)
