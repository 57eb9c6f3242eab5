"""Marks of a conversation: what kinds of data it has read, and the calls that it read them with.

A tool has flows: it returns untrusted text or private data, sends data out, or destroys things. A call of a tool that
returns such data marks the conversation. Rules test the marks (see `gate.policy.rules`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, get_args

from toolcrib.model.json import JsonObject
from toolcrib.model.tools import ToolRef

Mark = Literal["untrusted", "private"]
"""`untrusted`: text that others wrote, such as a web page, an email or an issue. `private`: data of the user."""
Act = Literal["sends", "destroys"]
Flow = Literal["untrusted", "private", "sends", "destroys"]

MARKS: Final[tuple[Mark, ...]] = get_args(Mark)
ACTS: Final[tuple[Act, ...]] = get_args(Act)
FLOWS: Final[tuple[Flow, ...]] = get_args(Flow)
MARK_WORDS: Final[Mapping[Mark, str]] = {"untrusted": "untrusted text", "private": "private data"}


@dataclass(frozen=True, slots=True)
class MarkingCall:
    """A call that set a mark: the number of its audit record, its tool, and when it returned."""

    audit_id: int
    ref: ToolRef
    at: datetime

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        at = self.at.astimezone(UTC).isoformat(timespec="milliseconds")
        return {"auditId": self.audit_id, "ref": str(self.ref), "at": at}


@dataclass(frozen=True, slots=True)
class HeldMarks:
    """The marks of one conversation, with the first calls that set each."""

    calls: Mapping[Mark, Sequence[MarkingCall]] = field(default_factory=dict[Mark, Sequence[MarkingCall]])

    def __contains__(self, mark: object) -> bool:
        return mark in self.calls

    def __bool__(self) -> bool:
        return bool(self.calls)

    def sentence(self, marks: Sequence[Mark] = MARKS) -> str:
        """Return what the conversation has read, with the calls, or an empty text."""
        parts: list[str] = []
        for mark in marks:
            calls = [f"{each.ref} (audit record {each.audit_id})" for each in self.calls.get(mark, ())]
            if calls:
                parts.append(f"{MARK_WORDS[mark]} with {', '.join(calls)}")
        return f"This conversation has read {' and '.join(parts)}." if parts else ""

    def audit_ids(self) -> JsonObject:
        """Return the numbers of the audit records of the calls, by mark."""
        return {mark: [each.audit_id for each in self.calls[mark]] for mark in MARKS if mark in self.calls}

    def to_json(self) -> list[JsonObject]:
        """Return the public shape: one entry for each mark."""
        return [
            {"mark": mark, "calls": [each.to_json() for each in self.calls[mark]]}
            for mark in MARKS
            if mark in self.calls
        ]


NO_MARKS: Final = HeldMarks()
