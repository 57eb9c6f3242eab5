"""The rules in force: one value, numbered, arranged so that those which name a tool are found at once.

Rules are ranked as calls are decided: deny, `ask` of the managed file, an answer that was remembered, ask, allow. How
specific a pattern is does not matter, nor the order rules were written in, but for which of several equal ones is named
as the reason. A rule that has expired is in no `Rules` except among `expired`, where explanations find it.

Which rules count for an asker, and which of these for a tool, is worked out once and kept with the value.

Above: `decide` asks which rules count for a tool and its asker; `RuleBook` makes new values when a place of rules
changes or a rule expires. Below: `patterns`, `conditions`, `model`. It must never let a rule count for more than it
says: bound to a definition or a session it counts there and nowhere else.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

from toolcrib.model.json import JsonObject, digest
from toolcrib.model.policy import Rule, Step, StepName
from toolcrib.model.principals import Principal
from toolcrib.model.tools import Tool, ToolRef
from toolcrib.policy.coding import is_inside
from toolcrib.policy.conditions import holds
from toolcrib.policy.patterns import PatternIndex

_ANY_MARKS = (None, None, None)
_REMEMBERED = frozenset({"session", "remembered"})
_STEPS: tuple[StepName, ...] = ("deny", "deny", "managed", "remembered", "ask", "allow")
_MOST_TOOLS = 2_000
"""For so many tools it is remembered which rules count for an asker; beyond, it is worked out anew."""
_MOST_ASKERS = 256
"""For so many askers it is remembered which rules count for them; beyond, it is worked out anew."""


class Ranked(NamedTuple):
    """A rule at its place in the order of decision, with the step it makes where it counts.

    `for_some`: it does not count for every asker. `of_some`: nor for every tool it names. `hides`: it takes the tool
    out of lists, as a deny rule without conditions on arguments does.
    """

    rank: int
    rule: Rule
    for_some: bool
    of_some: bool
    hides: bool
    step: Step


class Standing:
    """The rules that count for one asker; which of them count for a tool is told in the order of decision."""

    __slots__ = ("_index", "_kept", "_ranked")

    def __init__(self, ranked: Sequence[Ranked], index: PatternIndex) -> None:
        self._ranked = ranked
        self._index = index
        self._kept: dict[ToolRef, tuple[Tool, tuple[Ranked, ...]]] = {}

    def on(self, tool: Tool) -> tuple[Ranked, ...]:
        """The rules on a tool, defined and marked as it is; only conditions on arguments are left open."""
        kept = self._kept.get(tool.ref)
        if kept is None or kept[0] is not tool:
            ranked = self._ranked
            named = [ranked[number] for number in self._index.find(tool.ref)]
            found = tuple([each for each in named if not each.of_some or _wrong_tool(each.rule, tool) is None])
            if len(self._kept) >= _MOST_TOOLS:
                self._kept.clear()
            kept = self._kept[tool.ref] = (tool, found)
        return kept[1]

    def hides(self, tool: Tool) -> bool:
        """Whether the first rule on a tool that holds without arguments takes it out of lists."""
        ranked = self._ranked
        for number in self._index.find(tool.ref):
            each = ranked[number]
            if not each.rule.conditions and (not each.of_some or _wrong_tool(each.rule, tool) is None):
                return each.hides
        return False


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
    _standings: dict[tuple[str | None, ...], Standing] = field(
        default_factory=dict[tuple[str | None, ...], Standing], init=False, repr=False, compare=False
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

    @cached_property
    def _for_all(self) -> Standing | None:
        """What counts for every asker alike, if all of these rules do."""
        return None if any(each.for_some for each in self.ranked) else Standing(self.ranked, self._index)

    def arrange(self) -> None:
        """Sort and read all patterns now, not when the first call waits for it."""
        _ = self._index, self._for_all, self.fingerprint

    def naming(self, ref: ToolRef) -> tuple[Ranked, ...]:
        """The rules whose patterns name this tool, in the order of decision, whoever asks."""
        ranked = self.ranked
        return tuple([ranked[number] for number in self._index.find(ref)])

    def standing(self, asker: Principal) -> Standing:
        """The rules that count for this asker."""
        for_all = self._for_all
        if for_all is not None:
            return for_all
        shape = (asker.source, asker.agent, asker.mode, asker.session, asker.cwd)
        found = self._standings.get(shape)
        if found is None:
            ranked = self.ranked
            count = {
                number
                for number, each in enumerate(ranked)
                if not each.for_some or _wrong_asker(each.rule, asker) is None
            }
            if len(self._standings) >= _MOST_ASKERS:
                self._standings.clear()
            found = self._standings[shape] = Standing(ranked, self._index.only(count))
        return found

    def numbered(self, version: int) -> "Rules":
        """The same rules under another number; what was worked out for them stays."""
        again = copy(self)
        object.__setattr__(again, "version", version)
        return again

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
    step = Step(_STEPS[at], True, rule.effect, reason, rule.id, rule.origin)
    where = rule.where
    for_some = rule.session is not None or rule.origin.kind == "session"
    for_some = for_some or bool(where.sources or where.agents or where.modes or where.projects)
    marks = (where.read_only, where.destructive, where.open_world)
    of_some = rule.definition_hash is not None or marks != _ANY_MARKS
    return Ranked(at, rule, for_some, of_some, at == 0, step)


def obstacle(rule: Rule, tool: Tool, principal: Principal) -> str | None:
    """Why a rule does not count for this tool and asker, whatever the arguments; None if it does."""
    return _wrong_tool(rule, tool) or _wrong_asker(rule, principal)


def _wrong_tool(rule: Rule, tool: Tool) -> str | None:
    if rule.definition_hash is not None and rule.definition_hash != tool.definition_hash:
        return "It was made for another definition of the tool."
    where = rule.where
    marks = tool.marks
    for wanted, mark, word in (
        (where.read_only, marks.read_only, "read-only"),
        (where.destructive, marks.destructive, "destructive"),
        (where.open_world, marks.open_world, "open-world"),
    ):
        if wanted is not None and wanted is not mark:
            return f"The tool is {'not ' if wanted else ''}{word}."
    return None


def _wrong_asker(rule: Rule, principal: Principal) -> str | None:
    if (rule.session is not None or rule.origin.kind == "session") and rule.session != (principal.session or ""):
        return "It belongs to another session."
    where = rule.where
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
        before = self._current
        rules = Rules.at(self._clock(), before.version + 1, everything)
        same = (rules.rules, rules.expired) == (before.rules, before.expired)
        self._current = before.numbered(rules.version) if same else rules
        self._ends = self._current.next_expiry
        self._current.arrange()
