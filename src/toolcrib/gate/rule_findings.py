"""Findings about rules: too wide, never applied, shadowed or in conflict, with a better rule where there is one.

Earlier versions remembered an answer as a rule for the whole tool and every principal. Such rules stay in force and are
reported here, as are conditions that compare a path as text, since the same file has many spellings.
`policy.rule_proofs` finds rules that never decide. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from toolcrib.gate.approvals.remembering import propose
from toolcrib.gate.approvals.requests import ApprovalReply, rule_of_answer
from toolcrib.gate.policy import coding_tools
from toolcrib.gate.policy.paths import is_path_name, looks_like_path
from toolcrib.gate.policy.patterns import names
from toolcrib.gate.policy.regular import NotRegular, regular
from toolcrib.gate.policy.rule_proofs import ProofKind, RuleProof
from toolcrib.gate.policy.rules import rank
from toolcrib.gate.policy.wording import describe
from toolcrib.model.approvals import Approval, ApprovalRequest
from toolcrib.model.json import JsonObject
from toolcrib.model.policy import Binding, Condition, Rule
from toolcrib.model.tools import ToolRef

FindingSeverity: TypeAlias = Literal["warning", "note"]
"""`note`: the rule works as written, but may not mean what it says."""
REMEMBERED_ID = "answer-"
"""The prefix of the id of a remembered answer. The id of the approval follows."""
_AS_TEXT = frozenset({"glob", "regex", "equals"})
_BOUND_TOOLS = tuple(
    ToolRef(coding_tools.SERVER, tool) for tool in ("Bash", "Write", "Edit", "NotebookEdit", "Read", "WebFetch")
)


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """A problem with one rule, the fix, and a better rule if there is one."""

    rule: Rule
    code: str
    message: str
    fix: str
    proposal: Rule | None = None
    severity: FindingSeverity = "warning"

    def to_json(self) -> JsonObject:
        """Return the public JSON, without an absent proposal."""
        shape: JsonObject = {"rule": self.rule.id, "code": self.code, "severity": self.severity}
        shape |= {"message": self.message, "fix": self.fix}
        return shape if self.proposal is None else {**shape, "proposal": self.proposal.to_json()}


def check_rules(rules: Iterable[Rule], approvals: Mapping[str, Approval]) -> list[RuleFinding]:
    """Return the findings about these rules. `approvals` maps ids to the approvals that remembered rules came from."""
    return [finding for rule in rules for finding in _of_rule(rule, approvals)]


def proof_finding(proof: RuleProof) -> RuleFinding:
    """Return what was proven about a rule as a finding."""
    rule, about = proof.rule, f"Rule {proof.rule.id} ({_short(proof.rule)})"
    code, message = _PROOFS[proof.kind]
    tool = proof.tool if proof.tool is not None else ""
    others = " and ".join(f"{other.id} ({_short(other)})" for other in proof.others)
    decides = min((rule, *proof.others), key=rank)
    text = message.format(about=about, reason=proof.reason, others=others, tool=tool, decides=decides.id)
    is_note = proof.kind == "conflict" or (proof.kind == "unmatched" and rule.origin.kind == "managed")
    return RuleFinding(rule, code, text, _proof_fix(proof), severity="note" if is_note else "warning")


_PROOFS: dict[ProofKind, tuple[str, str]] = {
    "unmatched": ("rule.matches_nothing", "{about} matches no tool that is known now."),
    "unmet": ("rule.never_applies", "{about} never applies. {reason}"),
    "shadowed": ("rule.shadowed", "{about} never decides, for example on {tool}: {others} always decides first."),
    "conflict": (
        "rule.conflict",
        "{about} overlaps with {others}, for example on {tool}. Rule {decides} decides there.",
    ),
}


def _proof_fix(proof: RuleProof) -> str:
    origin = proof.rule.origin
    if proof.kind == "conflict":
        return "Limit one of the rules if this is not what you want."
    if proof.kind == "unmatched":
        return "Compare the pattern with `toolcrib tools list`."
    if origin.file is not None:
        return f"Remove it from {_place(proof.rule)}, or change it there."
    return f"Change it, or run `toolcrib rules remove {proof.rule.id}`."


def _place(rule: Rule) -> str:
    origin = rule.origin
    return f"{origin.file}:{origin.line}" if origin.line else str(origin.file)


def _of_rule(rule: Rule, approvals: Mapping[str, Approval]) -> Iterator[RuleFinding]:
    if rule.origin.kind in ("remembered", "session"):
        yield from _too_wide(rule, approvals.get(rule.id.removeprefix(REMEMBERED_ID)))
    for condition in rule.conditions:
        if _is_path_as_text(rule, condition):
            yield _path_as_text(rule, condition)
        if condition.test == "regex" and not _is_usable(condition):
            message = f"Rule {rule.id} ({_short(rule)}) has an expression that is not supported: {condition.value}."
            fix = _change(rule, None, "a regular expression without back-references and look-around")
            yield RuleFinding(rule, "rule.expression", f"{message} The condition counts against the caller.", fix)


def _too_wide(rule: Rule, approval: Approval | None) -> Iterator[RuleFinding]:
    reasons: list[str] = []
    if rule.principal is None and (rule.session is None or rule.effect == "allow"):
        reasons.append(f"{'allows' if rule.effect == 'allow' else 'denies'} {rule.pattern} for {_whom(rule)}")
    if rule.effect == "allow" and not rule.conditions and any(names(rule.pattern, ref) for ref in _BOUND_TOOLS):
        reasons.append("applies to every command, path or address")
    if reasons:
        proposal = _narrower(rule, approval) if approval is not None else None
        message = f"Rule {rule.id} was remembered from one answer and {' and '.join(reasons)}."
        yield RuleFinding(rule, "rule.too_wide", message, _change(rule, proposal), proposal)


def _whom(rule: Rule) -> str:
    if rule.session is not None:
        return f"session {rule.session} in every mode"
    if rule.where.agents:
        return f"agent {' or '.join(rule.where.agents)} from every source and in every mode"
    return "every agent, app, source and mode"


def _narrower(rule: Rule, approval: Approval) -> Rule:
    """Return the rule that the same answer would write today. Masked arguments cannot be repeated."""
    asked = ApprovalRequest(
        approval.ref, approval.definition_hash, approval.arguments, approval.principal, approval.door, approval.why
    )
    offered = replace(approval, remembering=replace(propose(asked), refusal=None))
    decision = "approve" if rule.effect == "allow" else "deny"
    scope = "session" if rule.session is not None else "always"
    made = rule_of_answer(
        offered, ApprovalReply(decision, scope, rule.created_by, rule.reason, None), approval.created_at
    )
    bound = Binding.of(approval.principal)
    return replace(rule, conditions=made.conditions, where=made.where, principal=bound)


def _is_path_as_text(rule: Rule, condition: Condition) -> bool:
    if condition.test not in _AS_TEXT or not isinstance(condition.value, str):
        return False
    if condition.test == "equals" and rule.effect == "allow":
        return False  # exactly one text is allowed, regardless of how many spellings the file has
    return looks_like_path(condition.value) or (
        condition.test == "glob" and "/" in condition.value and is_path_name(condition.pointer.rpartition("/")[2])
    )


def _path_as_text(rule: Rule, condition: Condition) -> RuleFinding:
    proposal = None
    if condition.test != "regex" and condition.value.startswith(("/", "~/")):
        better = Condition(condition.pointer, "path", condition.value)
        proposal = replace(rule, conditions=tuple(better if each == condition else each for each in rule.conditions))
    message = (
        f"Rule {rule.id} ({_short(rule)}) compares the path `{condition.pointer}` as text: `//etc/passwd`, "
        "`/var/../etc/passwd` and links are other spellings of the same file."
    )
    return RuleFinding(rule, "rule.path_as_text", message, _change(rule, proposal), proposal)


def _is_usable(condition: Condition) -> bool:
    try:
        regular(str(condition.value))
    except NotRegular:
        return False
    return True


def _short(rule: Rule) -> str:
    return f"{rule.effect} {rule.pattern}"


def _change(rule: Rule, proposal: Rule | None, better: str = "the test `path`") -> str:
    """Return the fix for a rule. Without a proposal, it suggests writing a rule with `better`."""
    if rule.origin.file is not None:
        instead = f" Use the test `path` there: {describe(proposal)}" if proposal is not None else f" Use {better}."
        return f"Change it in {_place(rule)}.{instead}"
    if proposal is None and rule.origin.kind in ("remembered", "session"):
        return f"Run `toolcrib rules remove {rule.id}`; the next call asks again and proposes a narrower rule."
    if proposal is None:
        return f"Add a rule with {better} instead, then run `toolcrib rules remove {rule.id}`."
    return f"Run `toolcrib rules narrow {rule.id}` to make it: {describe(proposal)}"
