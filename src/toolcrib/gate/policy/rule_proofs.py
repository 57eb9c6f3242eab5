"""Proves which rules never apply, never decide, or contradict each other, over a catalog and all possible principals.

The principals that rules can tell apart are finite: one for each mentioned agent, source, mode, project, token and
session, and one that no rule mentions. A rule can decide a call if one of them, on one tool, meets the rule and no
earlier rule that always holds. Conditions on arguments may hold or not.

Pure. Invariant: a rule is reported as `unmatched`, `unmet` or `shadowed` only if `decide` never names it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Literal, TypeAlias, TypeVar

from toolcrib.gate.policy import coding_tools
from toolcrib.gate.policy.reach import ToolClasses
from toolcrib.gate.policy.rules import Ranked, is_for_some, principal_obstacle, tool_obstacle
from toolcrib.model.policy import Rule
from toolcrib.model.principals import MODES, SOURCES, Mode, Principal, PrincipalKind, Source
from toolcrib.model.tools import Tool, ToolRef

ProofKind: TypeAlias = Literal["unmatched", "unmet", "shadowed", "conflict"]
"""`unmatched`: no tool matches the pattern. `unmet`: tools match, but no tool or principal meets the rest of the rule.
`shadowed`: other rules always decide first. `conflict`: an allow rule and a stricter one overlap only in part."""
MOST_CONFLICTS = 3
"""Maximum number of conflicting rules that are named for one rule."""
_OTHER = "\0"
"""A name that no rule can mention."""
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class KnownPrincipals:
    """The agents, tokens and sessions that exist."""

    agents: frozenset[str] = frozenset()
    tokens: tuple[Principal, ...] = ()
    sessions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RuleProof:
    """What was proven about a rule. `others` are the rules that shadow it or conflict with it, `tool` an example."""

    kind: ProofKind
    rule: Rule
    reason: str = ""
    others: tuple[Rule, ...] = ()
    tool: ToolRef | None = None


@dataclass(slots=True)
class _Scope:
    """The tool classes in which a rule applies, as bits, and why it does not apply to the others it names."""

    ranked: Ranked
    is_named: bool = False
    classes: list[int] = field(default_factory=list[int])
    bits: int = 0
    obstacle: str = ""


class RuleProver:
    """Proves statements about one set of rules."""

    def __init__(self, classes: ToolClasses, known: KnownPrincipals) -> None:
        self._rules = classes.rules
        self._known = known
        self._examples = dict(reversed([*zip(classes.numbers, classes.tools, strict=True)]))

    def prove(self) -> Iterator[RuleProof]:
        """Yield what is proven about each rule, in order of decision. Rules that came with a setting are left out."""
        usable: list[_Scope] = []
        for scope in self._scopes.values():
            if scope.ranked.rule.origin.kind == "default":
                continue
            found = self._dead(scope) or self._prove_shadowed(scope)
            if found is not None:
                yield found
            else:
                usable.append(scope)
        yield from self._conflicts(usable)

    @cached_property
    def _applying(self) -> dict[int, list[Ranked]]:
        """The rules that apply to the tools of each class, in order of decision, for any principal."""
        return {
            number: [
                each for each in self._rules.matching(tool.ref, tool.names) if tool_obstacle(each.rule, tool) is None
            ]
            for number, tool in self._examples.items()
        }

    @cached_property
    def _scopes(self) -> dict[str, _Scope]:
        scopes = {each.rule.id: _Scope(each) for each in self._rules.ranked}
        for number, tool in self._examples.items():
            for each in self._rules.matching(tool.ref, tool.names):
                scope = scopes[each.rule.id]
                scope.is_named = True
                scope.obstacle = tool_obstacle(each.rule, tool) or scope.obstacle
            for each in self._applying[number]:
                scopes[each.rule.id].classes.append(number)
                scopes[each.rule.id].bits |= 1 << number
        return scopes

    def _dead(self, scope: _Scope) -> RuleProof | None:
        rule = scope.ranked.rule
        if not scope.is_named:
            return RuleProof("unmatched", rule)
        if not scope.classes:
            return RuleProof("unmet", rule, scope.obstacle)
        if self._witness((rule,)) is None:
            return RuleProof("unmet", rule, self._missing(rule))
        return None

    def _missing(self, rule: Rule) -> str:
        """Return why no principal meets a rule."""
        bound = rule.principal
        if bound is not None and bound.kind == "token" and bound.name is not None:
            live = [each for each in self._known.tokens if each.name == bound.name]
            if not live or bound.token_id not in (None, *(each.token_id for each in live)):
                return f"The token {bound.name} does not exist any more."
        agents = [*rule.where.agents, *([bound.agent] if bound is not None and bound.agent is not None else [])]
        if agents and not self._known.agents.intersection(agents):
            return f"There is no agent {' or '.join(dict.fromkeys(agents))}."
        if rule.session is not None and rule.session not in self._known.sessions:
            return f"Session {rule.session} does not exist any more."
        return "No caller meets all its limits on agent, source, mode, project and session."

    def _prove_shadowed(self, scope: _Scope) -> RuleProof | None:
        rule = scope.ranked.rule
        tried: dict[tuple[str, ...], bool] = {}
        for number in scope.classes:
            earlier = self._earlier(scope.ranked, number)
            key = tuple(each.id for each in earlier)
            if key not in tried:
                tried[key] = self._witness((rule,), earlier) is not None
            if tried[key]:
                return None
        first = self._earlier(scope.ranked, scope.classes[0])
        by = [each for each in first if self._witness((rule, each)) is not None]
        return RuleProof("shadowed", rule, "", tuple(by), self._examples[scope.classes[0]].ref)

    def _earlier(self, ranked: Ranked, number: int) -> list[Rule]:
        """Return the rules that decide before this one on a class of tools, whatever the arguments are."""
        found: list[Rule] = []
        edits = _is_editor(self._examples[number]) and ranked.step.step != "remembered"
        for each in self._applying[number]:
            if each.rule.id == ranked.rule.id:
                break
            if each.rule.is_conditional or (edits and each.step.step == "remembered"):
                continue  # a remembered answer does not cover edits of files that decide what runs
            found.append(each.rule)
        return found

    def _conflicts(self, usable: Sequence[_Scope]) -> Iterator[RuleProof]:
        stricter = [each for each in usable if each.ranked.rule.effect != "allow"]
        for scope in usable:
            if scope.ranked.rule.effect != "allow":
                continue
            found = [each for each in stricter if each.bits & scope.bits and self._conflict(scope, each)]
            if found:
                shared = (scope.bits & found[0].bits).bit_length() - 1
                others = tuple(each.ranked.rule for each in found[:MOST_CONFLICTS])
                yield RuleProof("conflict", scope.ranked.rule, "", others, self._examples[shared].ref)

    def _conflict(self, one: _Scope, other: _Scope) -> bool:
        """Return whether two rules overlap and neither is an exception to the other."""
        first, second = one.ranked.rule, other.ranked.rule
        if not one.bits & ~other.bits and self._witness((first,), (second,)) is None:
            return False
        if not other.bits & ~one.bits and self._witness((second,), (first,)) is None:
            return False
        return self._witness((first, second)) is not None

    def _witness(self, met: Sequence[Rule], unmet: Sequence[Rule] = ()) -> Principal | None:
        """Return a principal to which all rules of `met` apply and none of `unmet`, or None."""
        if not any(map(is_for_some, met)):
            if not unmet:
                return Principal("owner", "owner", "api")
            if not all(map(is_for_some, unmet)):
                return None
        for principal in self._principals((*met, *unmet)):
            if all(principal_obstacle(rule, principal) is None for rule in met) and not any(
                principal_obstacle(rule, principal) is None for rule in unmet
            ):
                return principal
        return None

    def _principals(self, rules: Sequence[Rule]) -> Iterator[Principal]:
        """Yield one principal for each combination that these rules can tell apart, unmentioned values first."""
        bound = [rule.principal for rule in rules if rule.principal is not None]
        agents = {*(agent for rule in rules for agent in rule.where.agents), *(each.agent for each in bound)}
        sources: list[Source] = _told_apart(
            SOURCES, {*(source for rule in rules for source in rule.where.sources), *(each.source for each in bound)}
        )
        modes: list[Mode] = _told_apart(MODES, {mode for rule in rules for mode in rule.where.modes})
        projects = list(dict.fromkeys(project for rule in rules for project in rule.where.projects))
        sessions = {rule.session for rule in rules if rule.session is not None} & self._known.sessions
        kinds: tuple[PrincipalKind, ...] = ("owner", "session", "token")
        for kind, source, mode, agent, cwd in product(
            kinds,
            sources,
            modes,
            (_OTHER, None, *sorted(agent for agent in agents if agent is not None and agent in self._known.agents)),
            (None, *projects),
        ):
            name, token_id = ("owner" if kind == "owner" else _OTHER), (_OTHER if kind == "token" else None)
            for session in (_OTHER, *sorted(sessions)) if kind == "session" else (None,):
                yield Principal(kind, name, source, mode, agent, session, cwd, token_id=token_id)
        names = {each.name for each in bound if each.kind == "token"}
        for token in self._known.tokens:
            if token.name in names:
                yield from (replace(token, cwd=cwd) for cwd in (None, *projects))


def _told_apart(values: Iterable[_Value], mentioned: set[_Value]) -> list[_Value]:
    """Return the mentioned values, after one that is not mentioned."""
    others = [value for value in values if value not in mentioned]
    return [*others[:1], *(value for value in values if value in mentioned)]


def _is_editor(tool: Tool) -> bool:
    return tool.ref.server == coding_tools.SERVER and tool.ref.tool in coding_tools.EDITORS
