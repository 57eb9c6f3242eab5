"""`explain`: a decision with every rule that was considered, and the smallest change that would flip it.

The verdict is that of `decide`, and a change is told only after `decide` was asked with it made: an explanation cannot
differ from what happens. Above: `toolcrib why`, `/api/policy/explain`, the console. Below: `decide`, `rules`. It must
never name a tool that it was not given: whoever asks passes the names the asker may know.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal, TypeAlias

from toolcrib.model.json import JsonObject
from toolcrib.model.policy import Decision, Origin, Rule, Step, Verdict
from toolcrib.model.principals import Principal
from toolcrib.model.tools import Tool, ToolRef
from toolcrib.policy.decide import REGISTERED, Creator, Grants, decide, sight
from toolcrib.policy.patterns import literally
from toolcrib.policy.rules import Ranked, Rules, obstacle, unmet

ChangeKind: TypeAlias = Literal["remove_rule", "add_rule", "grant", "source"]
MOST_OTHERS = 50
"""So many rules that name other tools are listed, so that a misspelt pattern can be found."""
MOST_CHANGES = 20
_PROPOSED = "proposed"
_GOALS: dict[Verdict, frozenset[Verdict]] = {
    "hidden": frozenset({"allow", "ask"}),
    "deny": frozenset({"allow", "ask"}),
    "ask": frozenset({"allow"}),
    "allow": frozenset({"deny", "hidden"}),
}
"""What counts as flipped."""


@dataclass(frozen=True, slots=True)
class Question:
    """All that a decision depends on."""

    ref: ToolRef
    tool: Tool | None
    principal: Principal
    grants: Grants
    rules: Rules
    arguments: JsonObject | None = None
    paths: Sequence[str] | None = None

    def decide(self) -> Decision:
        """The answer."""
        return decide(self.ref, self.tool, self.principal, self.grants, self.rules, self.arguments, self.paths)


@dataclass(frozen=True, slots=True)
class Change:
    """One thing a person could change, in words; `rule` is the id of one to remove, or `effect pattern` to add."""

    kind: ChangeKind
    change: str
    rule: str | None = None

    def to_json(self) -> JsonObject:
        """The public shape; absent parts are left out."""
        shape: JsonObject = {"kind": self.kind, "change": self.change}
        return shape if self.rule is None else {**shape, "rule": self.rule}


@dataclass(frozen=True, slots=True)
class Flip:
    """Changes that together flip a verdict, none of them for nothing; and the verdict after them."""

    changes: tuple[Change, ...]
    verdict: Verdict
    after: Question

    def to_json(self) -> JsonObject:
        """The public shape."""
        return {"changes": [change.to_json() for change in self.changes], "verdict": self.verdict}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a tool is seen, asked for or refused."""

    verdict: Verdict
    ref: ToolRef
    principal: Principal
    steps: tuple[Step, ...]
    decided_by: Step
    flip: Flip | None = None
    nearest: tuple[str, ...] = ()

    def to_json(self) -> JsonObject:
        """The public shape; absent parts are left out."""
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
        return shape


def explain(question: Question, known: Iterable[ToolRef] = (), server_note: str | None = None) -> Explanation:
    """Explain a decision. `known` are the tools whose names may be suggested; `server_note` says what is wrong with
    the tool's server, if something is (down, untrusted, not signed in)."""
    decision = question.decide()
    if question.tool is None:
        return _unknown(question, decision, known, server_note)
    steps = tuple(_chain(question, question.tool, decision))
    flipped = flip(question, decision)
    return Explanation(decision.verdict, question.ref, question.principal, steps, decision.decided_by, flipped)


def _unknown(question: Question, decision: Decision, known: Iterable[ToolRef], server_note: str | None) -> Explanation:
    step = decision.decided_by
    if server_note is not None:
        step = replace(step, reason=f"{step.reason} {server_note}")
    near = _nearest(question.ref, known)
    return Explanation(decision.verdict, question.ref, question.principal, (step,), step, nearest=near)


def _nearest(ref: ToolRef, known: Iterable[ToolRef]) -> tuple[str, ...]:
    """Names that were perhaps meant: the same tool elsewhere first, then what is written alike."""
    names = [str(each) for each in known]
    elsewhere = [name for name in names if name.partition("/")[2].lower() == ref.tool.lower()]
    alike = get_close_matches(str(ref), names, n=5, cutoff=0.6)
    return tuple(dict.fromkeys([*elsewhere[:5], *alike]))[:5]


def _chain(question: Question, tool: Tool, decision: Decision) -> Iterator[Step]:
    """The steps of a decision, with every rule in its place."""
    seen = (REGISTERED, *sight(tool, question.principal, question.grants))
    yield from seen
    rest = decision.steps[len(seen) :]
    by_rule = next((step for step in rest if step.rule is not None and step.step != "creator"), None)
    if seen[-1].effect != "exclude":
        naming = question.rules.naming(question.ref)
        yield from _rules(question, tool, naming, by_rule)
        yield from _others(question, naming)
    yield from (step for step in rest if step.matched and step is not by_rule)


def _rules(question: Question, tool: Tool, naming: Sequence[Ranked], by_rule: Step | None) -> Iterator[Step]:
    """Every rule that names the tool; those after the one that decided were not reached."""
    reached = True
    for ranked in naming:
        rule = ranked.rule
        if by_rule is not None and reached and rule.id == by_rule.rule:
            reached = False
            yield by_rule
            continue
        why = (
            _why_not(question, tool, rule) if reached else f"Rule {by_rule.rule if by_rule else ''} decided before it."
        )
        yield _unapplied(ranked, why)


def _why_not(question: Question, tool: Tool, rule: Rule) -> str:
    why = obstacle(rule, tool, question.principal)
    if why is None and rule.conditions:
        why = "It depends on the arguments." if question.arguments is None else unmet(rule, question.arguments)
    return why or "It does not apply."


def _others(question: Question, naming: Sequence[Ranked]) -> Iterator[Step]:
    """Rules that have expired, and the first of those that name other tools."""
    for ranked in Rules(rules=question.rules.expired).naming(question.ref):
        ended = ranked.rule.expires_at
        yield _unapplied(ranked, f"It expired at {ended.isoformat() if ended else 'an unknown time'}.")
    ids = {ranked.rule.id for ranked in naming}
    others = (ranked for ranked in question.rules.ranked if ranked.rule.id not in ids)
    for ranked, _ in zip(others, range(MOST_OTHERS), strict=False):
        yield _unapplied(ranked, f"Its pattern {ranked.rule.pattern} does not name the tool.")


def _unapplied(ranked: Ranked, why: str) -> Step:
    return replace(ranked.step, matched=False, effect="none", reason=why)


def flip(question: Question, decision: Decision) -> Flip | None:
    """The smallest change that flips the verdict, as far as one was found; it has been tried."""
    goal = _GOALS.get(decision.verdict)
    if goal is None or question.tool is None:
        return None
    flips_down = decision.verdict == "allow"
    changes: list[Change] = []
    for change, after in [_adding(question, "deny", "user")] if flips_down else _repairs(question, goal):
        changes.append(change)
        verdict = after.decide().verdict
        if verdict in goal:
            return Flip(tuple(changes), verdict, after)
    return None


def _repairs(question: Question, goal: frozenset[Verdict]) -> Iterator[tuple[Change, Question]]:
    """Take away, one by one, what stands in the way."""
    for _ in range(MOST_CHANGES):
        found = _repair(question, question.decide(), goal)
        if found is None:
            return
        yield found
        question = found[1]


def _repair(question: Question, decision: Decision, goal: frozenset[Verdict]) -> tuple[Change, Question] | None:
    """The change that takes away the step which decided, or that which led to it."""
    step = decision.decided_by
    if step.step == "scheduler" and step.effect == "exclude":
        principal = replace(question.principal, source="api")
        return Change("source", "Ask from another source than the scheduler."), replace(question, principal=principal)
    if step.step == "scheduler":
        step = decision.steps[-2]  # what asks, where nobody is there to be asked
    if step.step == "creator":
        return _repair_above(question, goal)
    if step.step == "permissions":
        return _granting(question)
    if step.step == "mode":
        return _adding(question, "allow", "user")
    if step.rule is None:
        return None
    removed = _removing(question, step.rule, step.origin)
    if step.step == "ask" and removed[1].decide().verdict not in goal:
        return _adding(question, "allow", "remembered")
    return removed


def _repair_above(question: Question, goal: frozenset[Verdict]) -> tuple[Change, Question] | None:
    """The change for who started the session: it may do no more than that."""
    creator = question.grants.creator
    if creator is None:
        return None
    above = replace(question, principal=creator.principal, grants=creator.grants)
    found = _repair(above, above.decide(), goal)
    if found is None:
        return None
    change, after = found
    grants = replace(question.grants, creator=Creator(after.principal, after.grants))
    words = f"For {creator.principal.name}, who started the session: {change.change}"
    return replace(change, change=words), replace(question, grants=grants, rules=after.rules)


def _removing(question: Question, rule: str, origin: Origin | None) -> tuple[Change, Question]:
    change = Change("remove_rule", f"Remove rule {rule}{_stands(origin)}.", rule)
    return change, replace(question, rules=question.rules.without([rule]))


def _stands(origin: Origin | None) -> str:
    if origin is None or origin.file is None:
        return ""
    return f" in {origin.file}" + (f", line {origin.line}" if origin.line is not None else "")


def _adding(
    question: Question, effect: Literal["allow", "deny"], kind: Literal["user", "remembered"]
) -> tuple[Change, Question]:
    pattern = literally(question.ref)
    rule = Rule(_PROPOSED, effect, pattern, Origin(kind))
    said = f"{effect} {pattern}"
    words = f"Add the rule `{said}`: toolcrib rules {effect} '{pattern}'."
    if kind == "remembered":
        words = "Answer the next question about this tool with `always`."
    return Change("add_rule", words, said), replace(question, rules=question.rules.having(rule))


def _granting(question: Question) -> tuple[Change, Question]:
    pattern, grants, agent = literally(question.ref), question.grants, question.principal.agent
    if grants.permissions is None:
        grants = replace(grants, bundles=(*grants.bundles, pattern))
        words = f"Give the {'agent' if agent else 'asker'} a bundle with {question.ref}."
    else:
        grants = replace(grants, permissions=(*grants.permissions, pattern))
        words = f"Add {question.ref} to the tool permissions of {f'agent {agent}' if agent else 'the asker'}."
    return Change("grant", words), replace(question, grants=grants)
