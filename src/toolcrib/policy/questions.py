"""What questions to a person are made of: their rows, what answers are bound to, the rules answers stand for.

Pure. Above: `approvals` lives on it. Below: `model`. It must never leave anything out of what an answer is bound to.
"""

import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from toolcrib.errors import Conflict
from toolcrib.model.approvals import Answer, Approval, Decided, Question, Scope, Verb
from toolcrib.model.json import JsonObject
from toolcrib.model.policy import Origin, Rule, RuleEffect, Where
from toolcrib.policy.patterns import literally


@dataclass(frozen=True, slots=True)
class Reply:
    """What a person said."""

    verb: Verb
    scope: Scope
    by: str
    reason: str | None
    edited: bytes | None


def opened(question: Question, seconds: float) -> Approval:
    """A question as it begins."""
    now = datetime.now(UTC)
    return Approval(
        id=secrets.token_hex(8),
        status="pending",
        door=question.door,
        principal=question.principal,
        ref=question.ref,
        definition_hash=question.definition_hash,
        arguments=question.arguments,
        why=question.why,
        created_at=now,
        expires_at=now + timedelta(seconds=seconds),
        call=question.call,
    )


def bind(approval: Approval, nonce: str) -> str:
    """The hash of everything an answer is bound to: the call, the asker with its session, and chance."""
    bound = [*approval.ref, approval.definition_hash, approval.principal.to_json(), approval.id, nonce]
    return sha256(json.dumps(bound, sort_keys=True).encode() + b"\n" + approval.arguments).hexdigest()


def ended(approval: Approval, decision: Decided, reason: str) -> Answer:
    """The end of a question that nobody answered."""
    return Answer(approval.id, decision, approval.arguments, reason=reason)


def answered(approval: Approval, row: Approval) -> Answer:
    """The answer to an open question that its row holds; a row that is not decided says no."""
    if row.status == "pending":
        return ended(approval, "expired", "Nobody approved this call.")
    given = approval.arguments if row.edited is None else row.edited
    return Answer(row.id, row.status, given, row.edited is not None, row.decided_by, row.reason)


def decided(id: str, decision: str = "closed", by: str | None = None) -> Conflict:
    """Somebody was first, and who."""
    who = f" by {by}" if by else ""
    return Conflict("approval.decided", f"The question {id} was {decision}{who} already.")


def remembered(approval: Approval, reply: Reply, now: datetime) -> Rule:
    """The rule that an answer for longer than one call stands for: this tool, defined as it is, and this agent."""
    principal = approval.principal
    for_session = reply.scope == "session"
    effect: RuleEffect = "allow" if reply.verb == "approve" else "deny"
    return Rule(
        id=f"answer-{approval.id}",
        effect=effect,
        pattern=literally(approval.ref),
        origin=Origin("session" if for_session else "remembered"),
        reason=reply.reason,
        created_by=reply.by,
        created_at=now,
        where=Where(agents=(principal.agent,) if principal.agent else ()),
        definition_hash=approval.definition_hash,
        session=principal.session if for_session else None,
    )


def required(approval: Approval) -> JsonObject:
    """The event that a person is asked."""
    data: JsonObject = {
        "approvalId": approval.id,
        "toolCallId": approval.call,
        "server": approval.ref.server,
        "tool": approval.ref.tool,
        "arguments": approval.given,
        "reason": approval.why,
        "expiresAt": approval.expires_at.isoformat(timespec="milliseconds"),
    }
    return data | _session_of(approval)


def resolved(approval: Approval, answer: Answer) -> JsonObject:
    """The event that a question has ended."""
    data: JsonObject = {"approvalId": approval.id, "decision": answer.decision}
    optional = {"by": answer.by, "reason": answer.reason}
    return data | {key: value for key, value in optional.items() if value is not None} | _session_of(approval)


def _session_of(approval: Approval) -> JsonObject:
    return {} if approval.principal.session is None else {"sessionId": approval.principal.session}
