"""The rules in force: one immutable, versioned value, indexed by the tools that rules name.

Rules are ranked in order of decision: deny, `ask` of the managed file, remembered answers, ask, allow. Neither the
specificity of a pattern nor the order of writing matters, except for which of several equal rules is named as the
reason. Expired rules appear only in `expired`, for explanations.

The rules that apply to a principal, and those of them that apply to a tool, are computed once and cached in the value.
A rule applies under every name of a server's definition: an allow rule only under trusted names, all others also under
names that a file merely claims.

Must never let a rule apply beyond its scope: one bound to a definition or a session applies there and nowhere else.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import NamedTuple

from toolcrib.gate.policy.conditions import NOWHERE, ConditionContext, holds
from toolcrib.gate.policy.flows import Acts, acts_of
from toolcrib.gate.policy.patterns import PatternIndex
from toolcrib.gate.policy.zones import is_inside
from toolcrib.model.json import JsonObject, digest
from toolcrib.model.marks import MARK_WORDS
from toolcrib.model.policy import Binding, DecisionStep, Rule, StepName
from toolcrib.model.principals import Principal
from toolcrib.model.servers import NO_NAMES, OtherName, ServerNames
from toolcrib.model.tools import Tool, ToolRef

_ANY_MARKS = (None, None, None)
_REMEMBERED = frozenset({"session", "remembered"})
_STEPS: tuple[StepName, ...] = ("deny", "deny", "managed", "remembered", "ask", "allow")
_MOST_TOOLS = 2_000
"""Maximum number of tools whose applicable rules are cached per principal."""
_MOST_PRINCIPALS = 256
"""Maximum number of principals whose applicable rules are cached."""


class Ranked(NamedTuple):
    """A rule at its rank in the order of decision, with its decision step.

    `for_some`: it does not apply to every principal. `of_some`: nor to every tool it names. `hides`: it removes the
    tool from listings, as a deny rule without conditions on arguments does.
    """

    rank: int
    rule: Rule
    for_some: bool
    of_some: bool
    hides: bool
    step: DecisionStep


class ApplicableRules:
    """The rules that apply to one principal, in order of decision."""

    __slots__ = ("_acts", "_by_tool", "_index", "_rank_rule")

    def __init__(self, ranked: Sequence[Ranked], index: PatternIndex, acts: Acts = acts_of) -> None:
        self._acts = acts
        self._rank_rule = ranked
        self._index = index
        self._by_tool: dict[ToolRef, tuple[Tool, tuple[Ranked, ...]]] = {}

    def on(self, tool: Tool) -> tuple[Ranked, ...]:
        """Return the rules that apply to a tool as defined and marked now, apart from conditions on arguments."""
        cached = self._by_tool.get(tool.ref)
        if cached is None or cached[0] is not tool:
            named = _matching(self._rank_rule, self._index, tool.ref, tool.names)
            found = tuple([each for each in named if not each.of_some or self._fits(each, tool)])
            if len(self._by_tool) >= _MOST_TOOLS:
                self._by_tool.clear()
            cached = self._by_tool[tool.ref] = (tool, found)
        return cached[1]

    def hides(self, tool: Tool) -> bool:
        """Return whether the first rule on a tool that holds without arguments removes it from listings."""
        for each in _matching(self._rank_rule, self._index, tool.ref, tool.names):
            if not each.rule.is_conditional and (not each.of_some or self._fits(each, tool)):
                return each.hides
        return False

    def _fits(self, ranked: Ranked, tool: Tool) -> bool:
        return tool_obstacle(ranked.rule, tool, self._acts) is None


def rank(rule: Rule) -> int:
    """Return the rank of a rule in the order of decision. Lower ranks come first."""
    kind = rule.origin.kind
    if rule.effect == "deny":
        return 1 if rule.is_conditional else 0
    if rule.effect == "ask":
        return 2 if kind == "managed" else 4
    return 3 if kind in _REMEMBERED else 5


@dataclass(frozen=True)
class Rules:
    """All rules in force, with a version so that decisions can be cached until they change."""

    version: int = 0
    rules: tuple[Rule, ...] = ()
    expired: tuple[Rule, ...] = ()
    acts: Acts = field(default=acts_of, compare=False)
    """Returns what a call of a tool does; see `flows`."""
    _applicable: dict[Principal, ApplicableRules] = field(
        default_factory=dict[Principal, ApplicableRules], init=False, repr=False, compare=False
    )

    @classmethod
    def at(cls, now: datetime, version: int, rules: Iterable[Rule], acts: Acts = acts_of) -> "Rules":
        """Split rules by their expiry at `now`."""
        in_force: list[Rule] = []
        expired: list[Rule] = []
        for rule in rules:
            is_over = rule.uses == 0 or (rule.expires_at is not None and rule.expires_at <= now)
            (expired if is_over else in_force).append(rule)
        return cls(version, tuple(in_force), tuple(expired), acts)

    @cached_property
    def ranked(self) -> tuple[Ranked, ...]:
        """All rules in order of decision."""
        return tuple(sorted(map(_rank_rule, self.rules), key=itemgetter(0)))

    @cached_property
    def _index(self) -> PatternIndex:
        return PatternIndex(each.rule.pattern for each in self.ranked)

    @cached_property
    def test_marks(self) -> bool:
        """Whether a rule tests the marks of conversations."""
        return any(rule.where.marks for rule in self.rules)

    @cached_property
    def fingerprint(self) -> str:
        """Identifies a set of rules, also across restarts, which reset the version."""
        return digest([rule.to_json() for rule in self.rules])[:16]

    @cached_property
    def next_expiry(self) -> datetime | None:
        """When the first of these rules expires. From then on this value must not be used."""
        return min((rule.expires_at for rule in self.rules if rule.expires_at is not None), default=None)

    @cached_property
    def _for_all(self) -> ApplicableRules | None:
        """The rules of every principal, or None if one of them is limited to some."""
        return (
            None if any(each.for_some for each in self.ranked) else ApplicableRules(self.ranked, self._index, self.acts)
        )

    def arrange(self) -> None:
        """Sort and parse all patterns now instead of during the first call."""
        _ = self._index, self._for_all, self.fingerprint, self.test_marks

    def matching(self, ref: ToolRef, names: ServerNames = NO_NAMES) -> tuple[Ranked, ...]:
        """Return the rules whose patterns match this tool, in order of decision, for any principal."""
        return tuple(_matching(self.ranked, self._index, ref, names))

    def applicable_to(self, principal: Principal) -> ApplicableRules:
        """Return the rules that apply to this principal."""
        for_all = self._for_all
        if for_all is not None:
            return for_all
        found = self._applicable.get(principal)
        if found is None:
            ranked = self.ranked
            count = {
                number
                for number, each in enumerate(ranked)
                if not each.for_some or principal_obstacle(each.rule, principal) is None
            }
            if len(self._applicable) >= _MOST_PRINCIPALS:
                self._applicable.clear()
            found = self._applicable[principal] = ApplicableRules(ranked, self._index.only(count), self.acts)
        return found

    def with_version(self, version: int) -> "Rules":
        """Return the same rules under another version, with their caches."""
        again = copy(self)
        object.__setattr__(again, "version", version)
        return again

    def without(self, ids: Iterable[str]) -> "Rules":
        """Return these rules without some."""
        removed = frozenset(ids)
        return Rules(
            self.version, tuple(rule for rule in self.rules if rule.id not in removed), self.expired, self.acts
        )

    def with_rules(self, *more: Rule) -> "Rules":
        """Return these rules and more."""
        return Rules(self.version, (*self.rules, *more), self.expired, self.acts)


def _matching(ranked: Sequence[Ranked], index: PatternIndex, ref: ToolRef, names: ServerNames) -> list[Ranked]:
    """Return the rules that name a tool, in order. A match by another name of its server adds that to the reason."""
    direct = index.find(ref)
    if not names.trusted and not names.claimed:
        return [ranked[number] for number in direct]
    found = {number: ranked[number] for number in direct}
    for other in names.trusted:
        for number in index.find(ToolRef(other.name, ref.tool)):
            found.setdefault(number, _through(ranked[number], other))
    for other in names.claimed:
        for number in index.find(ToolRef(other.name, ref.tool)):
            if ranked[number].rule.effect != "allow":
                found.setdefault(number, _through(ranked[number], other))
    return [found[number] for number in sorted(found)]


def _through(ranked: Ranked, other: OtherName) -> Ranked:
    reason = f"{ranked.step.reason} It matches through the name {other.name} in {other.file}."
    return ranked._replace(step=replace(ranked.step, reason=reason))


def _rank_rule(rule: Rule) -> Ranked:
    at = rank(rule)
    reason = rule.reason or f"Rule {rule.effect} {rule.pattern} names the tool."
    if rule.principal is not None:
        reason = f"{reason} {_bound_to(rule, rule.principal)}"
    step = DecisionStep(_STEPS[at], True, rule.effect, reason, rule.id, rule.origin)
    where = rule.where
    marks = (where.read_only, where.destructive, where.open_world)
    of_some = rule.definition_hash is not None or marks != _ANY_MARKS or bool(where.flows or where.excepted)
    return Ranked(at, rule, is_for_some(rule), of_some, at == 0, step)


def _bound_to(rule: Rule, binding: Binding) -> str:
    verb = "was remembered for" if rule.origin.kind in _REMEMBERED else "applies to"
    return f"It {verb} {binding.describe()}."


def is_for_some(rule: Rule) -> bool:
    """Return whether a rule does not apply to every principal."""
    where = rule.where
    bound = rule.session is not None or rule.principal is not None or rule.origin.kind == "session"
    return bound or bool(where.sources or where.agents or where.modes or where.projects)


def obstacle(rule: Rule, tool: Tool, principal: Principal, acts: Acts = acts_of) -> str | None:
    """Return why a rule does not apply to this tool and principal, regardless of arguments, or None."""
    return tool_obstacle(rule, tool, acts) or principal_obstacle(rule, principal)


def tool_obstacle(rule: Rule, tool: Tool, acts: Acts = acts_of) -> str | None:
    """Return why a rule does not apply to this tool, although its pattern may match, or None."""
    if rule.definition_hash is not None and rule.definition_hash != tool.definition_hash:
        return "It was made for another definition of the tool."
    where = rule.where
    if is_excepted(rule, tool):
        return "The rule excepts this tool."
    marks = tool.marks
    for wanted, mark, word in (
        (where.read_only, marks.read_only, "read-only"),
        (where.destructive, marks.destructive, "destructive"),
        (where.open_world, marks.open_world, "open-world"),
    ):
        if wanted is not None and wanted is not mark:
            return f"The tool is {'not ' if wanted else ''}{word}."
    if where.flows and acts(tool, None).isdisjoint(where.flows):
        return f"The tool does none of these: {', '.join(where.flows)}."
    return None


def is_excepted(rule: Rule, tool: Tool) -> bool:
    """Return whether a rule excepts this tool, by its own name or a trusted one of its server."""
    if not rule.where.excepted:
        return False
    servers = (tool.ref.server, *(other.name for other in tool.names.trusted))
    index = _exceptions(rule.where.excepted)
    return any(index.find(ToolRef(server, tool.ref.tool)) for server in servers)


@lru_cache(maxsize=256)
def _exceptions(patterns: tuple[str, ...]) -> PatternIndex:
    return PatternIndex(patterns)


def principal_obstacle(rule: Rule, principal: Principal) -> str | None:
    """Return why a rule does not apply to this principal, or None."""
    if (rule.session is not None or rule.origin.kind == "session") and rule.session != (principal.session or ""):
        return "It belongs to another session."
    if rule.principal is not None and not rule.principal.includes(principal):
        return _bound_to(rule, rule.principal)
    where = rule.where
    if where.sources and principal.source not in where.sources:
        return f"It does not apply to source {principal.source}."
    if where.agents and principal.agent not in where.agents:
        return (
            f"It does not apply to agent {principal.agent}." if principal.agent else "It applies to other callers only."
        )
    if where.modes and principal.mode not in where.modes:
        return f"It does not apply to mode {principal.mode}."
    cwd = principal.cwd
    if where.projects and (cwd is None or not any(is_inside(cwd, project) for project in where.projects)):
        return "The caller's directory is in none of its projects."
    return None


def unmet(rule: Rule, arguments: JsonObject | None, context: ConditionContext = NOWHERE) -> str | None:
    """Return which condition on the call keeps a rule from applying, or None if all hold.

    An undetermined condition counts against the caller: it holds for a rule that restricts, and not for one that
    allows. Without arguments, as in a listing, conditions on arguments do not hold.
    """
    for mark in rule.where.marks:
        if mark not in context.marks:
            return f"The conversation has not read {MARK_WORDS[mark]}."
    flows = rule.where.flows
    if flows and context.tool is not None and context.acts(context.tool, arguments).isdisjoint(flows):
        return f"The call does none of these: {', '.join(flows)}."
    if rule.conditions and arguments is None:
        return "It depends on the arguments."
    arguments = arguments or {}
    for condition in rule.conditions:
        result = holds(condition, arguments, context)
        if result is None and rule.effect == "allow":
            return f"Whether `{condition.pointer}` matches is undetermined."
        if result is False:
            return f"The argument `{condition.pointer}` does not match."
    return None
