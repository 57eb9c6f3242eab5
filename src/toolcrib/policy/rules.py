"""The rules in force: one value, numbered, arranged so that those which name a tool are found at once.

Rules are ranked as calls are decided: deny, `ask` of the managed file, an answer that was remembered, ask, allow. How
specific a pattern is does not matter, nor the order rules were written in, but for which of several equal ones is named
as the reason. A rule that has expired is in no `Rules` except among `expired`, where explanations find it.

Above: `decide` asks which rules name a tool and whether they fit; `RuleBook` makes new values when a place of rules
changes or a rule expires. Below: `patterns`, `conditions`, `model`. It must never let a rule count for more than it
says: bound to a definition or a session it counts there and nowhere else.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

from toolcrib.model.json import JsonObject, digest
from toolcrib.model.policy import Rule, Step, StepName, Where
from toolcrib.model.principals import Principal
from toolcrib.model.tools import Tool, ToolRef
from toolcrib.policy.coding import is_inside
from toolcrib.policy.conditions import holds
from toolcrib.policy.patterns import PatternIndex

_ANYWHERE = Where()
_REMEMBERED = frozenset({"session", "remembered"})
_STEPS: tuple[StepName, ...] = ("deny", "deny", "managed", "remembered", "ask", "allow")
_MOST_KEPT = 50_000
"""For so many tools it is remembered which rules name them; beyond, it is worked out anew."""


class Ranked(NamedTuple):
    """A rule at its place in the order of decision, with the step it makes where it counts.

    `scoped`: it does not count for everybody and every definition. `hides`: it takes the tool out of lists, as a deny
    rule without conditions on arguments does.
    """

    rank: int
    rule: Rule
    scoped: bool
    hides: bool
    step: Step


def rank(rule: Rule) -> int:
    """Where a rule stands in the order of decision; lower comes first."""
    kind = rule.origin.kind
    if rule.effect == "deny":
        return 1 if rule.conditions else 0
    if rule.effect == "ask":
        return 2 if kind == "managed" else 4
    return 3 if kind in _REMEMBERED else 5


@dataclass(frozen=True)
class Rules:
    """All rules in force, numbered by version so that decisions can be kept until they change."""

    version: int = 0
    rules: tuple[Rule, ...] = ()
    expired: tuple[Rule, ...] = ()
    _kept: dict[ToolRef, tuple[Ranked, ...]] = field(
        default_factory=dict[ToolRef, tuple[Ranked, ...]], init=False, repr=False, compare=False
    )

    @classmethod
    def at(cls, now: datetime, version: int, rules: Iterable[Rule]) -> "Rules":
        """The rules of which none has expired by now; the others are set aside."""
        in_force: list[Rule] = []
        expired: list[Rule] = []
        for rule in rules:
            (expired if rule.expires_at is not None and rule.expires_at <= now else in_force).append(rule)
        return cls(version, tuple(in_force), tuple(expired))

    @cached_property
    def ranked(self) -> tuple[Ranked, ...]:
        """All rules in the order of decision."""
        return tuple(sorted(map(_ranked, self.rules), key=itemgetter(0)))

    @cached_property
    def _index(self) -> PatternIndex:
        return PatternIndex(each.rule.pattern for each in self.ranked)

    @cached_property
    def fingerprint(self) -> str:
        """Tells any two sets of rules apart, also across restarts, which begin to number anew."""
        return digest([rule.to_json() for rule in self.rules])[:16]

    @cached_property
    def next_expiry(self) -> datetime | None:
        """When the first of these rules ends; from then on this value must not be used."""
        return min((rule.expires_at for rule in self.rules if rule.expires_at is not None), default=None)

    def naming(self, ref: ToolRef) -> tuple[Ranked, ...]:
        """The rules whose patterns name this tool, in the order of decision."""
        found = self._kept.get(ref)
        if found is None:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            ranked = self.ranked
            found = self._kept[ref] = tuple([ranked[number] for number in self._index.find(ref)])
        return found

    def without(self, ids: Iterable[str]) -> "Rules":
        """These rules but for some."""
        gone = frozenset(ids)
        return Rules(self.version, tuple(rule for rule in self.rules if rule.id not in gone), self.expired)

    def having(self, *more: Rule) -> "Rules":
        """These rules and more."""
        return Rules(self.version, (*self.rules, *more), self.expired)


def _ranked(rule: Rule) -> Ranked:
    at = rank(rule)
    reason = rule.reason or f"Rule {rule.effect} {rule.pattern} names the tool."
    return Ranked(
        at, rule, _is_scoped(rule), at == 0, Step(_STEPS[at], True, rule.effect, reason, rule.id, rule.origin)
    )


def _is_scoped(rule: Rule) -> bool:
    bound = rule.definition_hash is not None or rule.session is not None or rule.origin.kind == "session"
    return bound or rule.where != _ANYWHERE


def obstacle(rule: Rule, tool: Tool, principal: Principal) -> str | None:
    """Why a rule does not count for this tool and asker, whatever the arguments; None if it does."""
    if rule.definition_hash is not None and rule.definition_hash != tool.definition_hash:
        return "It was made for another definition of the tool."
    if (rule.session is not None or rule.origin.kind == "session") and rule.session != (principal.session or ""):
        return "It belongs to another session."
    where = rule.where
    marks = tool.marks
    for wanted, mark, word in (
        (where.read_only, marks.read_only, "read-only"),
        (where.destructive, marks.destructive, "destructive"),
        (where.open_world, marks.open_world, "open-world"),
    ):
        if wanted is not None and wanted is not mark:
            return f"The tool is {'not ' if wanted else ''}{word}."
    return _not_for(where, principal)


def _not_for(where: Where, principal: Principal) -> str | None:
    if where.sources and principal.source not in where.sources:
        return f"It is not for source {principal.source}."
    if where.agents and principal.agent not in where.agents:
        return f"It is not for agent {principal.agent}." if principal.agent else "It is for other askers only."
    if where.modes and principal.mode not in where.modes:
        return f"It is not for mode {principal.mode}."
    cwd = principal.cwd
    if where.projects and (cwd is None or not any(is_inside(cwd, project) for project in where.projects)):
        return "The asker works in no project of it."
    return None


def unmet(rule: Rule, arguments: JsonObject) -> str | None:
    """Which condition on the arguments keeps a rule from counting; None if all hold.

    A condition that cannot be tested within its limits is taken the careful way: it holds for a rule that restricts
    and does not for one that allows.
    """
    for condition in rule.conditions:
        held = holds(condition, arguments)
        if held is None and rule.effect == "allow":
            return f"Whether `{condition.pointer}` fits cannot be said within the limits."
        if held is False:
            return f"The argument `{condition.pointer}` does not fit."
    return None


class RuleBook:
    """The rules of all places (files, database, sessions), and the one value that is in force now.

    A place is replaced as a whole. Calling the book gives the value; it stays the same object until something changes.
    """

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        self._places: dict[str, tuple[Rule, ...]] = {}
        self._current = Rules()
        self._ends: datetime | None = None

    def __call__(self) -> Rules:
        """The rules in force now."""
        if self._ends is not None and self._clock() >= self._ends:
            self.renew()
        return self._current

    @property
    def places(self) -> Mapping[str, tuple[Rule, ...]]:
        """All rules by place, expired ones too."""
        return self._places

    def set(self, place: str, rules: Sequence[Rule]) -> None:
        """These are the rules of a place now."""
        if self._places.get(place, ()) != tuple(rules):
            self._places[place] = tuple(rules)
            self.renew()

    def renew(self) -> None:
        """Number the rules anew: something beside them changed on which decisions depend."""
        everything = (rule for rules in self._places.values() for rule in rules)
        self._current = Rules.at(self._clock(), self._current.version + 1, everything)
        self._ends = self._current.next_expiry
        self._current.naming(ToolRef("", ""))  # arranges them now, not when the first call waits for it
