"""Questions to a person about one call, and their answers.

A question is what the gate asks, an approval is what is kept of it and shown, an answer is what the gate gets back.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import orjson

from toolcrib.model.json import Json, JsonObject
from toolcrib.model.policy import Rule
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef

ApprovalStatus = Literal["pending", "approved", "denied", "expired", "withdrawn"]
"""`expired`: nobody answered in time, or the crib ended before; `withdrawn`: the call itself was given up."""
Decided = Literal["approved", "denied", "expired", "withdrawn"]
Verb = Literal["approve", "deny"]
Scope = Literal["once", "session", "always"]


@dataclass(frozen=True, slots=True)
class Question:
    """May this asker make this call, with exactly these arguments (`arguments` is their canonical JSON)?

    `why` says which rule or mode asks; `call` is the number the call has where it came from.
    """

    ref: ToolRef
    definition_hash: str
    arguments: bytes
    principal: Principal
    door: str
    why: str
    call: str | None = None


@dataclass(frozen=True, slots=True)
class Approval:
    """A question as it is kept and shown. `arguments` are whole while it is open, and without secrets afterwards."""

    id: str
    status: ApprovalStatus
    door: str
    principal: Principal
    ref: ToolRef
    definition_hash: str
    arguments: bytes
    why: str
    created_at: datetime
    expires_at: datetime
    call: str | None = None
    edited: bytes | None = None
    scope: Scope | None = None
    decided_at: datetime | None = None
    decided_by: str | None = None
    reason: str | None = None

    @property
    def given(self) -> Json:
        """The arguments as a value."""
        return orjson.loads(self.arguments)

    def to_json(self) -> JsonObject:
        """The public shape; absent parts are left out."""
        shape: JsonObject = {
            "id": self.id,
            "status": self.status,
            "door": self.door,
            "principal": self.principal.to_json(),
            "server": self.ref.server,
            "tool": self.ref.tool,
            "arguments": self.given,
            "definitionHash": self.definition_hash,
            "why": self.why,
            "createdAt": _text(self.created_at),
            "expiresAt": _text(self.expires_at),
        }
        optional = {
            "sessionId": self.principal.session,
            "toolCallId": self.call,
            "editedArguments": None if self.edited is None else orjson.loads(self.edited),
            "scope": self.scope,
            "decidedAt": None if self.decided_at is None else _text(self.decided_at),
            "decidedBy": self.decided_by,
            "reason": self.reason,
        }
        return shape | {key: value for key, value in optional.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Answer:
    """How a question ended. `arguments` is the canonical JSON to run if it was approved: `edited` by the person or not.

    `rule` is what an answer for longer than this call says from now on.
    """

    approval: str
    decision: Decided
    arguments: bytes
    edited: bool = False
    by: str | None = None
    reason: str | None = None
    rule: Rule | None = None

    @property
    def approved(self) -> bool:
        """Whether the call may be made, once."""
        return self.decision == "approved"

    @property
    def refusal(self) -> str:
        """Why the call is not made, as the model is told."""
        if self.decision == "denied":
            return f"A person refused this call: {self.reason}" if self.reason else "A person refused this call."
        return self.reason or "Nobody approved this call."


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")
