"""`explain`: a decision with every rule that was considered, and the smallest change that would flip it.

The verdict comes from `decide`, and a change is only reported after `decide` has confirmed it, so an explanation cannot
differ from what happens. Must never name a tool outside of `known`, the names the principal may know.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal, TypeAlias

from toolcrib.gate.policy.conditions import ConditionContext
from toolcrib.gate.policy.decide import REGISTERED, Creator, Grants, decide, is_decisive_edit, sight
from toolcrib.gate.policy.paths import LEXICAL, Files
from toolcrib.gate.policy.patterns import literal_pattern
from toolcrib.gate.policy.rules import Ranked, Rules, obstacle, unmet
from toolcrib.gate.policy.zones import TouchedPath
from toolcrib.model.json import JsonObject
from toolcrib.model.marks import NO_MARKS, HeldMarks
from toolcrib.model.policy import Decision, DecisionStep, Rule, RuleOrigin, Verdict
from toolcrib.model.principals import Principal
from toolcrib.model.tools import Tool, ToolRef

ChangeKind: TypeAlias = Literal["remove_rule", "add_rule", "grant", "source"]
MOST_OTHERS = 50
"""Maximum number of listed rules that name other tools, which helps to find a misspelt pattern."""
MOST_CHANGES = 20
_PROPOSED = "proposed"
_GOALS: dict[Verdict, frozenset[Verdict]] = {
    "hidden": frozenset({"allow", "ask"}),
    "deny": frozenset({"allow", "ask"}),
    "ask": frozenset({"allow"}),
    "allow": frozenset({"deny", "hidden"}),
}
"""The verdicts that count as flipped."""


@dataclass(frozen=True, slots=True)
class ExplainQuery:
    """Everything a decision depends on."""

    ref: ToolRef
    tool: Tool | None
    principal: Principal
    grants: Grants
    rules: Rules
    arguments: JsonObject | None = None
    paths: Sequence[TouchedPath] | None = None
    files: Files = LEXICAL
    marks: HeldMarks = NO_MARKS

    def decide(self) -> Decision:
        """Return the decision."""
        inputs = (self.ref, self.tool, self.principal, self.grants, self.rules)
        return decide(*inputs, self.arguments, self.paths, self.files, marks=self.marks)

    def unmet(self, rule: Rule) -> str | None:
        """Return which condition keeps a rule from applying to this call, or None."""
        arguments = self.arguments
        if arguments is not None and self.tool is not None:
            arguments = self.tool.filled(arguments)
        context = ConditionContext.of(self.tool, self.principal, self.files, self.marks, self.rules.acts)
        return unmet(rule, arguments, context)


@dataclass(frozen=True, slots=True)
class RuleChange:
    """One possible change, in words. `rule` is the id of a rule to remove, or the `effect pattern` to add."""

    kind: ChangeKind
    change: str
    rule: str | None = None

    def to_json(self) -> JsonObject:
        """Return the public JSON, without absent members."""
        shape: JsonObject = {"kind": self.kind, "change": self.change}
        return shape if self.rule is None else {**shape, "rule": self.rule}


@dataclass(frozen=True, slots=True)
class Flip:
    """A minimal set of changes that flips a verdict, and the resulting verdict."""

    changes: tuple[RuleChange, ...]
    verdict: Verdict
    after: ExplainQuery

    def to_json(self) -> JsonObject:
        """Return the public JSON."""
        return {"changes": [change.to_json() for change in self.changes], "verdict": self.verdict}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a tool is visible, asked for or refused. `naming` has the ids of all rules that name it."""

    verdict: Verdict
    ref: ToolRef
    principal: Principal
    steps: tuple[DecisionStep, ...]
    decided_by: DecisionStep
    flip: Flip | None = None
    nearest: tuple[str, ...] = ()
    naming: frozenset[str] = frozenset()
    marks: HeldMarks = NO_MARKS

    def to_json(self) -> JsonObject:
        """Return the public JSON, without absent members."""
        shape: JsonObject = {
            "verdict": self.verdict,
            "ref": str(self.ref),
            "principal": self.principal.to_json(),
            "steps": [step.to_json() for step in self.steps],
            "decidedBy": self.decided_by.to_json(),
        }
        if self.flip is not None:
            shape["flip"] = self.flip.to_json()
        if self.nearest:
            shape["nearest"] = list(self.nearest)
        if self.marks:
            shape["marks"] = self.marks.to_json()
        return shape


def explain(question: ExplainQuery, known: Iterable[ToolRef] = (), server_note: str | None = None) -> Explanation:
    """Explain a decision.

    `known` are the tools whose names may be suggested. `server_note` describes a problem with the tool's server, such
    as being down, untrusted or not signed in.
    """
    decision = question.decide()
    if question.tool is None:
        return _unknown(question, decision, known, server_note)
    steps = tuple(_chain(question, question.tool, decision))
    flipped = flip(question, decision)
    naming = frozenset(each.rule.id for each in question.rules.matching(question.ref, question.tool.names))
    return Explanation(
        decision.verdict, question.ref, question.principal, steps, decision.decided_by, flipped, naming=naming,
        marks=question.marks,
    )  # fmt: skip


def _unknown(
    question: ExplainQuery, decision: Decision, known: Iterable[ToolRef], server_note: str | None
) -> Explanation:
    step = decision.decided_by
    if server_note is not None:
        step = replace(step, reason=f"{step.reason} {server_note}")
    near = _nearest(question.ref, known)
    return Explanation(decision.verdict, question.ref, question.principal, (step,), step, nearest=near)


def _nearest(ref: ToolRef, known: Iterable[ToolRef]) -> tuple[str, ...]:
    """Return similar names: the same tool on other servers first, then similar spellings."""
    names = [str(each) for each in known]
    elsewhere = [name for name in names if name.partition("/")[2].lower() == ref.tool.lower()]
    alike = get_close_matches(str(ref), names, n=5, cutoff=0.6)
    return tuple(dict.fromkeys([*elsewhere[:5], *alike]))[:5]


def _chain(question: ExplainQuery, tool: Tool, decision: Decision) -> Iterator[DecisionStep]:
    """Yield the steps of a decision, with every rule in its place."""
    sight_steps = (REGISTERED, *sight(tool, question.principal, question.grants))
    yield from sight_steps
    rest = decision.steps[len(sight_steps) :]
    by_rule = next((step for step in rest if step.rule is not None and step.step != "creator"), None)
    if sight_steps[-1].effect != "exclude":
        naming = question.rules.matching(question.ref, tool.names)
        yield from _rules(question, tool, naming, by_rule)
        yield from _others(question, tool, naming)
    yield from (step for step in rest if step.matched and step is not by_rule)


def _rules(
    question: ExplainQuery, tool: Tool, naming: Sequence[Ranked], by_rule: DecisionStep | None
) -> Iterator[DecisionStep]:
    """Yield every rule that names the tool. Rules after the deciding one were not reached."""
    reached = True
    for ranked in naming:
        rule = ranked.rule
        if by_rule is not None and reached and rule.id == by_rule.rule:
            reached = False
            yield by_rule
            continue
        decided = f"Rule {by_rule.rule if by_rule else ''} decided first."
        yield _skip_step(ranked, _why_not(question, tool, ranked) if reached else decided)


def _why_not(question: ExplainQuery, tool: Tool, ranked: Ranked) -> str:
    rule = ranked.rule
    if ranked.step.step == "remembered" and is_decisive_edit(tool, question.paths):
        return "A remembered answer does not cover edits of files that decide what runs."
    why = obstacle(rule, tool, question.principal, question.rules.acts)
    if why is None and rule.is_conditional:
        why = question.unmet(rule)
    return why or "It does not apply."


def _others(question: ExplainQuery, tool: Tool, naming: Sequence[Ranked]) -> Iterator[DecisionStep]:
    """Yield expired rules, and the first rules that name other tools."""
    for ranked in Rules(rules=question.rules.expired).matching(question.ref, tool.names):
        yield _skip_step(ranked, _why_over(ranked.rule))
    ids = {ranked.rule.id for ranked in naming}
    others = (ranked for ranked in question.rules.ranked if ranked.rule.id not in ids)
    for ranked, _ in zip(others, range(MOST_OTHERS), strict=False):
        yield _skip_step(ranked, f"Its pattern {ranked.rule.pattern} does not name the tool.")


def _why_over(rule: Rule) -> str:
    if rule.uses == 0:
        return "It was limited to a number of calls and is used up."
    return f"It expired at {rule.expires_at.isoformat() if rule.expires_at else 'an unknown time'}."


def _skip_step(ranked: Ranked, why: str) -> DecisionStep:
    return replace(ranked.step, matched=False, effect="none", reason=why)


def flip(question: ExplainQuery, decision: Decision) -> Flip | None:
    """Return the smallest change found that flips the verdict, confirmed by `decide`, or None."""
    goal = _GOALS.get(decision.verdict)
    if goal is None or question.tool is None:
        return None
    flips_down = decision.verdict == "allow"
    changes: list[RuleChange] = []
    for change, after in [_add_rule(question, "deny", "user")] if flips_down else _repairs(question, goal):
        changes.append(change)
        verdict = after.decide().verdict
        if verdict in goal:
            return Flip(tuple(changes), verdict, after)
    return None


def _repairs(question: ExplainQuery, goal: frozenset[Verdict]) -> Iterator[tuple[RuleChange, ExplainQuery]]:
    """Yield changes that remove the obstacles one by one."""
    for _ in range(MOST_CHANGES):
        found = _repair(question, question.decide(), goal)
        if found is None:
            return
        yield found
        question = found[1]


def _repair(
    question: ExplainQuery, decision: Decision, goal: frozenset[Verdict]
) -> tuple[RuleChange, ExplainQuery] | None:
    """Return the change that removes the deciding step, or the step that led to it."""
    step = decision.decided_by
    if step.step == "scheduler" and step.effect == "exclude":
        principal = replace(question.principal, source="api")
        return RuleChange("source", "Call the tool from another source than the scheduler."), replace(
            question, principal=principal
        )
    if step.step == "scheduler":
        step = decision.steps[-2]  # the step that asked, in a run without a person
    if step.step == "creator":
        return _repair_above(question, goal)
    if step.step == "permissions":
        return _grant(question)
    if step.step == "mode":
        return _add_rule(question, "allow", "user")
    if step.rule is None:
        return None
    removed = _remove_rule(question, step.rule, step.origin)
    covered = question.tool is not None and not is_decisive_edit(question.tool, question.paths)
    if step.step == "ask" and covered and removed[1].decide().verdict not in goal:
        return _add_rule(question, "allow", "remembered")
    return removed


def _repair_above(question: ExplainQuery, goal: frozenset[Verdict]) -> tuple[RuleChange, ExplainQuery] | None:
    """Return the change for the creator of the session, which limits the session's rights."""
    creator = question.grants.creator
    if creator is None or creator.is_revoked:
        return None
    above = replace(question, principal=creator.principal, grants=creator.grants)
    found = _repair(above, above.decide(), goal)
    if found is None:
        return None
    change, after = found
    grants = replace(question.grants, creator=Creator(after.principal, after.grants))
    words = f"For {creator.principal.name}, the creator of the session: {change.change}"
    return replace(change, change=words), replace(question, grants=grants, rules=after.rules)


def _remove_rule(question: ExplainQuery, rule: str, origin: RuleOrigin | None) -> tuple[RuleChange, ExplainQuery]:
    change = RuleChange("remove_rule", f"Remove rule {rule}{_location(origin)}.", rule)
    return change, replace(question, rules=question.rules.without([rule]))


def _location(origin: RuleOrigin | None) -> str:
    if origin is None or origin.file is None:
        return ""
    return f" in {origin.file}" + (f", line {origin.line}" if origin.line is not None else "")


def _add_rule(
    question: ExplainQuery, effect: Literal["allow", "deny"], kind: Literal["user", "remembered"]
) -> tuple[RuleChange, ExplainQuery]:
    pattern = literal_pattern(question.ref)
    rule = Rule(_PROPOSED, effect, pattern, RuleOrigin(kind))
    written = f"{effect} {pattern}"
    words = f"Add the rule `{written}`: toolcrib rules {effect} '{pattern}'."
    if kind == "remembered":
        words = "Answer the next approval of this tool with `always`."
    return RuleChange("add_rule", words, written), replace(question, rules=question.rules.with_rules(rule))


def _grant(question: ExplainQuery) -> tuple[RuleChange, ExplainQuery]:
    pattern, grants, agent = literal_pattern(question.ref), question.grants, question.principal.agent
    if grants.permissions is None:
        grants = replace(grants, bundles=(*grants.bundles, pattern))
        words = f"Give the {'agent' if agent else 'caller'} a bundle with {question.ref}."
    else:
        grants = replace(grants, permissions=(*grants.permissions, pattern))
        words = f"Add {question.ref} to the tool permissions of {f'agent {agent}' if agent else 'the caller'}."
    return RuleChange("grant", words), replace(question, grants=grants)
