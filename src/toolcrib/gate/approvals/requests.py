"""Builds approvals: their rows, the binding of answers, and the rules that answers write.

Pure. Must never omit anything from the binding of an answer.
"""

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TypeAlias

from toolcrib.gate.policy import coding_tools
from toolcrib.gate.policy.patterns import literal_pattern
from toolcrib.gate.policy.wording import describe
from toolcrib.gate.policy.zones import is_inside
from toolcrib.model.approvals import (
    NO_RULE_LIMITS,
    SIMILAR_FOR,
    Approval,
    ApprovalAnswer,
    ApprovalRequest,
    Decided,
    Prefix,
    Remembering,
    RuleLimits,
    Scope,
    Verb,
)
from toolcrib.model.errors import Conflict, InvalidRequest
from toolcrib.model.json import JsonObject, canonical
from toolcrib.model.policy import Binding, Condition, Rule, RuleEffect, RuleOrigin, Where
from toolcrib.model.principals import Mode

Check: TypeAlias = Callable[[JsonObject, bytes], object]
"""Raises `InvalidRequest` for arguments that do not fit the tool."""
_LONGEST_REASON = 2000
_WIDENING: tuple[Mode, ...] = ("plan", "default", "acceptEdits", "bypassPermissions")
"""Modes, narrowest first. `dontAsk` is not included: it never requests approvals."""


@dataclass(frozen=True, slots=True)
class ApprovalReply:
    """A person's reply to an approval."""

    verb: Verb
    scope: Scope
    by: str
    reason: str | None
    edited: bytes | None
    prefix: str | None = None
    limits: RuleLimits = NO_RULE_LIMITS


_NOTHING = Remembering()


def new_approval(
    question: ApprovalRequest, seconds: float, remembering: Remembering = _NOTHING, at: datetime | None = None
) -> Approval:
    """Return a new pending approval."""
    now = at or datetime.now(UTC)
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
        remembering=remembering,
    )


def bind(approval: Approval, nonce: str) -> str:
    """Return the hash of everything an answer is bound to: the call, the principal with its session, and a nonce."""
    bound = [*approval.ref, approval.definition_hash, approval.principal.to_json(), approval.id, nonce]
    return sha256(json.dumps(bound, sort_keys=True).encode() + b"\n" + approval.arguments).hexdigest()


def answer_without_reply(approval: Approval, decision: Decided, reason: str) -> ApprovalAnswer:
    """Return the answer for an approval that ended without one."""
    return ApprovalAnswer(approval.id, decision, approval.arguments, reason=reason)


def stored_answer(approval: Approval, row: Approval) -> ApprovalAnswer:
    """Return the answer stored in a row. An undecided row counts as a denial."""
    if row.status == "pending":
        return answer_without_reply(approval, "expired", "This call was not approved.")
    given = approval.arguments if row.edited is None else row.edited
    return ApprovalAnswer(row.id, row.status, given, row.edited is not None, row.decided_by, row.reason)


def already_decided(id: str, decision: str = "closed", by: str | None = None) -> Conflict:
    """Return the error for an approval that was already decided, and by whom."""
    decider = f" by {by}" if by else ""
    return Conflict("approval.decided", f"Approval {id} was already {decision}{decider}.")


def rule_of_answer(approval: Approval, reply: ApprovalReply, now: datetime) -> Rule:
    """Return the rule that an answer for longer than one call writes.

    It is bound to the current definition of the tool, to the principal of the call and to the displayed conditions. An
    allow rule counts only in modes at least as wide as that of the call. Raises `InvalidRequest` (`approval.scope`,
    `approval.prefix`).
    """
    principal = approval.principal
    for_session = reply.scope == "session"
    if for_session and principal.session is None:
        raise InvalidRequest("approval.scope", f"Approval {approval.id} does not belong to a session.")
    offered = approval.remembering
    if offered.refusal is not None:
        raise InvalidRequest("approval.scope", offered.refusal, "Answer `once`.")
    if reply.edited is not None and (offered.conditions or reply.prefix is not None):
        message = (
            "An answer with edited arguments cannot be remembered, since the rule was proposed for the original ones."
        )
        raise InvalidRequest("approval.scope", message, "Answer `once`.")
    effect: RuleEffect = "allow" if reply.verb == "approve" else "deny"
    limits = reply.limits
    if limits != NO_RULE_LIMITS and effect != "allow":
        raise InvalidRequest("approval.scope", "Only an approval can be limited or edited.", "Leave the limits out.")
    if limits.expires_at is not None and limits.expires_at <= now:
        raise InvalidRequest("approval.scope", "The rule would end in the past.", "Choose a later time.")
    chosen = _choose_prefix(offered, reply.prefix) if effect == "allow" and reply.prefix is not None else None
    ends = approval.created_at + SIMILAR_FOR if chosen is not None and chosen.conditions else None
    return Rule(
        id=f"answer-{approval.id}",
        effect=effect,
        pattern=literal_pattern(approval.ref),
        origin=RuleOrigin("session" if for_session else "remembered"),
        reason=reply.reason,
        created_by=reply.by,
        created_at=now,
        expires_at=limits.expires_at or ends,
        conditions=proposed_conditions(offered, chosen) if limits.conditions is None else limits.conditions,
        where=_where(approval) if effect == "allow" else Where(),
        definition_hash=approval.definition_hash,
        session=principal.session if for_session else None,
        principal=Binding.of(principal),
        uses=limits.uses,
    )


def chosen_conditions(approval: Approval, prefix: str | None) -> tuple[Condition, ...]:
    """Return the conditions of the proposed rule for a prefix, or of the narrowest one. Raises `approval.prefix`."""
    offered = approval.remembering
    return proposed_conditions(offered, None if prefix is None else _choose_prefix(offered, prefix))


def _choose_prefix(offered: Remembering, prefix: str) -> Prefix:
    chosen = next((each for each in offered.prefixes if each.text == prefix), None)
    if chosen is None:
        choices = ", ".join(repr(each.text) for each in offered.prefixes) or "none"
        raise InvalidRequest(
            "approval.prefix", f"The prefix {prefix!r} was not proposed.", f"Proposed prefixes: {choices}."
        )
    return chosen


def proposed_conditions(offered: Remembering, chosen: Prefix | None) -> tuple[Condition, ...]:
    """Return the conditions of a proposed rule."""
    if chosen is None:
        return offered.conditions
    if chosen.conditions:
        return chosen.conditions
    wider = chosen.condition
    return tuple(wider if each.pointer == wider.pointer else each for each in offered.conditions)


def _where(approval: Approval) -> Where:
    """Return the modes at least as wide as the call's and, for the coding agent's tools, the project."""
    mode, cwd = approval.principal.mode, approval.principal.cwd
    modes = _WIDENING[_WIDENING.index(mode) :] if mode in _WIDENING else (mode,)
    in_project = approval.ref.server == coding_tools.SERVER and cwd is not None and is_inside(cwd, cwd)
    return Where(modes=modes, projects=(cwd,) if cwd is not None and in_project else ())


def remember_as(approval: Approval) -> JsonObject:
    """Return the rules that answers to a pending approval would write, by scope and decision, in public JSON."""
    shapes: JsonObject = {}
    scopes: tuple[Scope, ...] = ("session", "always") if approval.principal.session is not None else ("always",)
    verbs: tuple[Verb, ...] = ("approve", "deny")
    for scope in scopes if approval.remembering.refusal is None else ():
        shapes[scope] = {verb: _propose_rule(approval, scope, verb) for verb in verbs}
        prefixes = [
            {
                "prefix": each.text,
                "sentence": _sentence(approval, scope, "approve", each.text),
                "conditions": [one.to_json() for one in proposed_conditions(approval.remembering, each)],
            }
            for each in approval.remembering.prefixes
        ]
        shapes[scope]["approve"]["prefixes"] = prefixes
    return shapes


def _propose_rule(approval: Approval, scope: Scope, verb: Verb) -> JsonObject:
    rule = rule_of_answer(approval, ApprovalReply(verb, scope, "", None, None), approval.created_at)
    members = rule.to_json()
    for unknown in ("id", "createdBy", "createdAt"):
        members.pop(unknown, None)
    return {"rule": members, "sentence": describe(rule)}


def _sentence(approval: Approval, scope: Scope, verb: Verb, prefix: str) -> str:
    return describe(rule_of_answer(approval, ApprovalReply(verb, scope, "", None, None, prefix), approval.created_at))


def required_event(approval: Approval) -> JsonObject:
    """Return the event for a requested approval."""
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


def resolved_event(approval: Approval, answer: ApprovalAnswer, edited: JsonObject | None = None) -> JsonObject:
    """Return the event for a resolved approval. `edited` are the arguments that run instead of the requested ones."""
    data: JsonObject = {"approvalId": approval.id, "decision": answer.decision}
    optional: JsonObject = {"by": answer.by, "reason": answer.reason, "arguments": edited}
    return data | {key: value for key, value in optional.items() if value is not None} | _session_of(approval)


def _session_of(approval: Approval) -> JsonObject:
    return {} if approval.principal.session is None else {"sessionId": approval.principal.session}


def encode_edited(arguments: JsonObject | None, check: Check | None) -> bytes | None:
    """Return the arguments that a person edited as canonical JSON. Raises `InvalidRequest`."""
    if arguments is None:
        return None
    try:
        encoded = canonical(arguments)
    except TypeError as error:
        raise InvalidRequest("tool.arguments_invalid", f"The arguments are not JSON: {error}.") from error
    if check is not None:
        check(arguments, encoded)
    return encoded


def shorten(reason: str | None) -> str | None:
    """Return a person's reason without surrounding blanks, shortened; None if it is empty."""
    return reason.strip()[:_LONGEST_REASON] or None if reason else None
