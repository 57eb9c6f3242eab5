"""`reach`: which principal can call which tools without being asked, over the whole catalog.

Every answer comes from `decide`. Conditions on arguments are not evaluated: each of them may hold or not, so one tool
can have several possible verdicts. Tools that `decide` cannot tell apart form a class, and one of them is decided for
all. A catalog of thousands of tools therefore needs few decisions.

Pure. Invariant: a verdict is possible here exactly if some outcome of the conditions and paths leads to it. Calls that
name the crib's home are left out; they are denied for everyone.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product
from typing import Literal, TypeAlias

from toolcrib.gate.policy import coding_tools
from toolcrib.gate.policy.decide import Grants, decide
from toolcrib.gate.policy.rules import Rules, is_excepted
from toolcrib.gate.policy.zones import TouchedPath
from toolcrib.model.json import JsonObject
from toolcrib.model.policy import Decision, DecisionStep, Rule, Verdict
from toolcrib.model.principals import Principal
from toolcrib.model.tools import Tool, ToolRef

Access: TypeAlias = Literal["allow", "may", "ask", "deny", "hidden"]
"""`allow`: every call runs without approval. `may`: some calls do, depending on their arguments."""
ACCESS: tuple[Access, ...] = ("allow", "may", "ask", "deny", "hidden")
_ORDER: tuple[Verdict, ...] = ("allow", "ask", "deny", "hidden", "unknown")
_ELSEWHERE = (
    (TouchedPath("/outside of every project/file"),),
    (TouchedPath("/outside of every project/.git/config"),),
    (TouchedPath(None),),
)
"""Touched paths in no project: a plain file, a file that decides what runs, an unknown one."""
_Bits: TypeAlias = tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Subject:
    """A principal with its grants, and the label that people know it by."""

    who: str
    principal: Principal
    grants: Grants


@dataclass(frozen=True, slots=True)
class Outcome:
    """The possible verdicts on a tool, least strict first, and the step that leads to the first of them."""

    verdicts: tuple[Verdict, ...]
    step: DecisionStep

    @property
    def access(self) -> Access:
        """What the principal can do with the tool without being asked."""
        if self.verdicts[0] == "allow":
            return "allow" if len(self.verdicts) == 1 else "may"
        return "hidden" if self.verdicts[0] == "unknown" else self.verdicts[0]


@dataclass(frozen=True, slots=True)
class ReachGroup:
    """The tools of one principal that have the same outcome."""

    outcome: Outcome
    tools: tuple[ToolRef, ...]

    def to_json(self, most: int) -> JsonObject:
        """Return the public JSON with at most `most` names of tools."""
        step = self.outcome.step
        shape: JsonObject = {
            "access": self.outcome.access,
            "verdicts": list(self.outcome.verdicts),
            "reason": step.reason,
            "count": len(self.tools),
            "tools": [str(ref) for ref in self.tools[:most]],
        }
        return shape if step.rule is None else {**shape, "rule": step.rule}


class ToolClasses:
    """Tools grouped by everything that `decide` reads from a tool, apart from the grants of a principal."""

    def __init__(self, tools: Iterable[Tool], rules: Rules) -> None:
        self.tools = tuple(tools)
        self.rules = rules
        known: dict[object, int] = {}
        self.numbers = tuple(known.setdefault(_key(tool, rules), len(known)) for tool in self.tools)


def _key(tool: Tool, rules: Rules) -> object:
    named = rules.matching(tool.ref, tool.names)
    matched = tuple((each.rule.id, each.step.reason, is_excepted(each.rule, tool)) for each in named)
    pinned = tuple(each.rule.definition_hash == tool.definition_hash for each in named if each.rule.definition_hash)
    own = tool.ref.tool if tool.ref.server == coding_tools.SERVER else None
    return matched, pinned, tool.marks, own


def reach(subject: Subject, classes: ToolClasses) -> list[ReachGroup]:
    """Return what one principal can do with each tool, grouped by outcome, the least strict first."""
    outcomes: dict[tuple[int, _Bits], Outcome] = {}
    found: dict[Outcome, list[ToolRef]] = {}
    granted = _grants_of(subject.grants)
    for tool, number in zip(classes.tools, classes.numbers, strict=True):
        key = (number, tuple(bit for each in granted for bit in _bits(each, tool)))
        outcome = outcomes.get(key)
        if outcome is None:
            outcome = outcomes[key] = outcome_of(subject, tool, classes.rules)
        found.setdefault(outcome, []).append(tool.ref)
    groups = [ReachGroup(outcome, tuple(refs)) for outcome, refs in found.items()]
    return sorted(groups, key=lambda group: (ACCESS.index(group.outcome.access), group.tools[0]))


def outcome_of(subject: Subject, tool: Tool, rules: Rules) -> Outcome:
    """Return the possible verdicts of one principal on one tool."""
    decisions: dict[Verdict, Decision] = {}
    for decision in _decisions(subject, tool, rules):
        decisions.setdefault(decision.verdict, decision)
    verdicts = tuple(sorted(decisions, key=_ORDER.index))
    return Outcome(verdicts, decisions[verdicts[0]].decided_by)


def _decisions(subject: Subject, tool: Tool, rules: Rules) -> Iterator[Decision]:
    """Yield the decision under every outcome of the conditions and paths that can make a difference.

    Only the first rule that holds decides, once for the principal and once for each creator above it. Assuming as many
    rules as there are principals therefore covers every combination.
    """
    principal, grants = subject.principal, subject.grants
    chain = _principals_of(principal, grants)
    applicable = {
        each.rule.id for one in chain for each in rules.applicable_to(one).on(tool) if each.rule.is_conditional
    }
    sizes = range(min(len(chain), len(applicable)) + 1)
    outcomes = [frozenset(ids) for size in sizes for ids in combinations(sorted(applicable), size)]
    for paths, ids in product(_paths(tool, chain), outcomes):

        def holds(rule: Rule, ids: frozenset[str] = ids) -> bool:
            return rule.id in ids

        yield decide(tool.ref, tool, principal, grants, rules, paths=paths, assume=holds)


def _principals_of(principal: Principal, grants: Grants) -> list[Principal]:
    found, creator = [principal], grants.creator
    while creator is not None and not creator.is_revoked:
        found.append(creator.principal)
        creator = creator.grants.creator
    return found


def _grants_of(grants: Grants) -> list[Grants]:
    """Return the grants of a principal and its creators that depend on the tool."""
    found = [grants]
    while (creator := found[-1].creator) is not None:
        found.append(creator.grants)
    return [each for each in found if each.permissions or each.bundles]


def _bits(grants: Grants, tool: Tool) -> _Bits:
    return grants.permit(tool), grants.bundle(tool)


def _paths(tool: Tool, chain: Sequence[Principal]) -> Sequence[Sequence[TouchedPath] | None]:
    """Return one set of touched paths for each way in which paths can matter."""
    if tool.ref.server != coding_tools.SERVER or not coding_tools.depends_on_paths(tool.ref.tool):
        return (None,)
    roots = dict.fromkeys(root for each in chain for root in each.projects if root is not None)
    return (*_ELSEWHERE, *(paths for root in roots for paths in _paths_in(root)))


@lru_cache(maxsize=1024)
def _paths_in(root: str) -> tuple[tuple[TouchedPath, ...], ...]:
    return (TouchedPath(f"{root}/file"),), (TouchedPath(f"{root}/.git/config"),)
