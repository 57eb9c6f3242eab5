"""Approval requests for a single call, and their answers.

The gate sends an `ApprovalRequest`, an `Approval` is stored and displayed, and the gate receives an `ApprovalAnswer`.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from toolcrib.model.json import Json, JsonObject, loads
from toolcrib.model.policy import Condition, Rule
from toolcrib.model.principals import Principal
from toolcrib.model.tools import CallResult, ToolRef

ApprovalStatus = Literal["pending", "approved", "denied", "expired", "withdrawn"]
"""`expired`: not answered in time, or the crib stopped first. `withdrawn`: the caller cancelled the call."""
Decided = Literal["approved", "denied", "expired", "withdrawn"]
Verb = Literal["approve", "deny"]
Scope = Literal["once", "session", "always"]
SIMILAR_FOR = timedelta(days=7)
"""How long a rule for repeatedly approved calls applies."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """A wider condition that can replace the exact one in a remembered answer, and the text that selects it.

    `conditions`, if set, replace all conditions of the rule, which then ends after `SIMILAR_FOR`. They describe calls
    that were approved repeatedly.
    """

    text: str
    condition: Condition
    conditions: tuple[Condition, ...] = ()

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        shape: JsonObject = {"prefix": self.text, "condition": self.condition.to_json()}
        return shape | ({"conditions": [each.to_json() for each in self.conditions]} if self.conditions else {})

    @classmethod
    def of_json(cls, shape: JsonObject) -> "Prefix":
        """Return the value for a shape made by `to_json`."""
        conditions = tuple(Condition(**each) for each in shape.get("conditions", ()))
        return cls(shape["prefix"], Condition(**shape["condition"]), conditions)


@dataclass(frozen=True, slots=True)
class Remembering:
    """The conditions of a remembered answer, in addition to the principal and the definition.

    `conditions` are the narrowest; each of `prefixes` may replace the condition on the same argument. `refusal` is the
    reason why the answer cannot be remembered at all.
    """

    conditions: tuple[Condition, ...] = ()
    prefixes: tuple[Prefix, ...] = ()
    refusal: str | None = None

    def to_json(self) -> JsonObject:
        """Return the stored shape."""
        return {
            "conditions": [each.to_json() for each in self.conditions],
            "prefixes": [each.to_json() for each in self.prefixes],
            "refusal": self.refusal,
        }

    @classmethod
    def of_json(cls, shape: JsonObject) -> "Remembering":
        """Return the value for a shape made by `to_json`."""
        prefixes = tuple(map(Prefix.of_json, shape["prefixes"]))
        return cls(tuple(Condition(**each) for each in shape["conditions"]), prefixes, shape["refusal"])


@dataclass(frozen=True, slots=True)
class RuleLimits:
    """How a person limits the rule of a remembered answer: a number of calls, an end, and edited conditions."""

    uses: int | None = None
    expires_at: datetime | None = None
    conditions: tuple[Condition, ...] | None = None


NO_RULE_LIMITS = RuleLimits()


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """Request to approve one call with exactly these arguments (`arguments` is their canonical JSON).

    `why` names the rule or mode that requires approval; `call` is the id the caller assigned to the call. With `once`,
    the answer cannot be remembered. `argument_names` are those that the tool declares.
    """

    ref: ToolRef
    definition_hash: str
    arguments: bytes
    principal: Principal
    door: str
    why: str
    call: str | None = None
    once: bool = False
    argument_names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Approval:
    """An approval as stored and displayed. `arguments` are complete while it is pending; secrets are masked later."""

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
    remembering: Remembering = Remembering()
    is_detached: bool = False
    """Whether no call waits for the answer: the client fetches it."""

    @property
    def given(self) -> Json:
        """The parsed arguments."""
        return loads(self.arguments)

    def to_json(self) -> JsonObject:
        """Return the public shape, without absent fields."""
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
            "editedArguments": None if self.edited is None else loads(self.edited),
            "scope": self.scope,
            "decidedAt": None if self.decided_at is None else _text(self.decided_at),
            "decidedBy": self.decided_by,
            "reason": self.reason,
        }
        return shape | {key: value for key, value in optional.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """The outcome of an approval.

    `arguments` is the canonical JSON to run if approved, `edited` if a person changed it. `rule` is the rule to add if
    the answer is valid for longer than this call.
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
        """Whether the call may run, once."""
        return self.decision == "approved"

    @property
    def refusal(self) -> str:
        """The reason for the refusal, as sent to the model."""
        if self.decision == "denied":
            return f"A person denied this call: {self.reason}" if self.reason else "A person denied this call."
        return self.reason or "This call was not approved."


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")


def edited_note(arguments: str) -> str:
    """Return the note for a call whose arguments a person edited."""
    return f"A person changed the arguments before approving this call. It ran with: {arguments}"


def with_edited(result: CallResult, arguments: bytes) -> CallResult:
    """Return the result with the note appended to its content."""
    note: JsonObject = {"type": "text", "text": edited_note(arguments.decode())}
    return replace(result, content=(*result.content, note))


def without_structure(result: CallResult) -> CallResult:
    """Return the result without structured content, which runtimes show to a model instead of the text and the note."""
    return replace(result, structured_content=None, has_structured=False) if result.content else result
