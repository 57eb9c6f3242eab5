"""Who can reach which tools of a crib without being asked: the owner's sources, tokens, agents and schedules.

Callers that reach every part of the lethal trifecta are the ones for which the preset is suggested.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace

import anyio.to_thread

from toolcrib.agents.schedules.readiness import as_run
from toolcrib.gate.catalog.catalog import Snapshot
from toolcrib.gate.policy.patterns import Parts, glob, literal_pattern, parts
from toolcrib.gate.policy.reach import ACCESS, ReachGroup, Subject, ToolClasses, reach
from toolcrib.gate.policy.rule_presets import LETHAL_TRIFECTA, RULE_PRESETS
from toolcrib.gate.policy.rules import Rules
from toolcrib.host.crib import Crib
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject
from toolcrib.model.marks import ACTS, MARKS, Flow
from toolcrib.model.principals import Mode, Principal, Source
from toolcrib.model.tools import Tool, ToolRef

MOST_NAMES = 100
"""Maximum number of tools that are named in one group."""
_SOURCES: tuple[Source, ...] = ("web", "cli", "api", "ide")
_SOME_PROJECT = "/any project"
"""Stands for the project of an agent's session, which is not known before it starts."""


@dataclass(frozen=True, slots=True)
class SubjectReach:
    """What one principal can do with the tools that match a pattern."""

    subject: Subject
    groups: tuple[ReachGroup, ...]

    def to_json(self) -> JsonObject:
        """Return the public JSON."""
        principal = self.subject.principal
        counts: Counter[str] = Counter()
        for group in self.groups:
            counts[group.outcome.access] += len(group.tools)
        shape: JsonObject = {
            "who": self.subject.who,
            "kind": principal.kind,
            "source": principal.source,
            "mode": principal.mode,
            "counts": {access: counts[access] for access in ACCESS},
            "groups": [group.to_json(MOST_NAMES) for group in self.groups],
        }
        return shape if principal.agent is None else {**shape, "agent": principal.agent}


async def find_reach(
    crib: Crib, pattern: str, *, source: Source = "cli", mode: Mode = "default", who: str = "", cwd: str | None = None
) -> list[SubjectReach]:
    """Return what every principal can do with the tools that match a pattern.

    `source` and `mode` are those of the sessions of agents. `who` selects the principals whose label contains it.
    `cwd` is the directory of principals that have none of their own.
    Raises `InvalidRequest` (`request.invalid`) for a pattern that is not valid.
    """
    named = crib.permissions.named(pattern)
    globs = parts(pattern if named is None else literal_pattern(named))
    if globs is None:
        raise InvalidRequest("request.invalid", f"{pattern!r} is not a pattern.", "Write `server/tool` or `server/*`.")
    rules = crib.permissions.rules().without(())  # its caches belong to the thread
    classes: dict[tuple[str | None, bool], ToolClasses] = {}
    found: list[SubjectReach] = []
    async for subject in _subjects(crib, source, mode, cwd):
        if who.casefold() not in subject.who.casefold():
            continue
        principal = subject.principal
        key = (principal.cwd, principal.kind == "session")
        if key not in classes:
            tools = crib.catalog.at(principal.cwd).tools.values()
            classes[key] = await anyio.to_thread.run_sync(_classes, tools, globs, rules, principal.kind == "session")
        groups = await anyio.to_thread.run_sync(reach, subject, classes[key])
        found.append(SubjectReach(subject, tuple(groups)))
    return found


async def find_exposed(crib: Crib) -> list[str]:
    """Return the callers that can read untrusted text and private data, and send data out or destroy, all unasked.

    Built-in tools do not count. Calls of a person set no marks, so persons are left out.
    """
    flows: dict[tuple[str | None, ToolRef], frozenset[Flow]] = {}
    found: list[str] = []
    for each in await find_reach(crib, "*"):
        principal = each.subject.principal
        if principal.is_owner and principal.source != "ide":
            continue
        reached = [ref for group in each.groups if group.outcome.access in ("allow", "may") for ref in group.tools]
        snapshot = crib.catalog.at(principal.cwd)
        union: set[Flow] = set()
        for ref in reached:
            key = (principal.cwd, ref)
            if key not in flows:
                flows[key] = _flows(crib, snapshot, ref)
            union |= flows[key]
        if union >= {*MARKS} and not union.isdisjoint(ACTS):
            found.append(each.subject.who)
    return found


def _flows(crib: Crib, snapshot: Snapshot, ref: ToolRef) -> frozenset[Flow]:
    tool, part = snapshot.tools[ref], snapshot.parts.get(ref.server)
    if tool.kind == "builtin":
        return frozenset()
    return crib.permissions.flows.of(tool, part.tools if part is not None else None)


async def preset_shapes(crib: Crib) -> list[JsonObject]:
    """Return the presets of rules, and for which callers one that is off is suggested."""
    shapes = [each.to_json(is_on=crib.permissions.has_preset(each)) for each in RULE_PRESETS.values()]
    if not crib.permissions.has_preset(LETHAL_TRIFECTA) and (exposed := await find_exposed(crib)):
        return [shape | {"suggestedFor": exposed} if shape["id"] == LETHAL_TRIFECTA.id else shape for shape in shapes]
    return shapes


def _classes(tools: Iterable[Tool], globs: Parts, rules: Rules, in_session: bool) -> ToolClasses:
    """Return the matching tools. Tools that a runtime runs itself exist in sessions only."""
    server, tool = glob(globs.server), glob(globs.tool)

    def is_wanted(each: Tool) -> bool:
        servers = (each.ref.server, *(other.name for other in each.names.trusted))
        shown = in_session or each.kind != "runtime"
        return shown and bool(tool(each.ref.tool)) and any(server(name) for name in servers)

    return ToolClasses(filter(is_wanted, tools), rules)


async def _subjects(crib: Crib, source: Source, mode: Mode, cwd: str | None) -> AsyncIterator[Subject]:
    grants = crib.permissions.grants

    async def located(who: str, principal: Principal) -> Subject:
        if cwd is not None and principal.cwd is None:
            principal = await crib.placed(replace(principal, cwd=cwd))
        return Subject(who, principal, grants(principal))

    for each in _SOURCES:
        yield await located(f"owner ({each})", crib.owner(each))
    for token in crib.tokens.live:
        yield await located(f"token {token.name}", token.principal)
    for agent in await crib.zoo.list():
        session = Principal("session", agent.id, source, mode, agent.id, worktree=_SOME_PROJECT)
        yield await located(f"agent {agent.id}", session)
    for schedule in await crib.schedules.list():
        run = await crib.placed(as_run(schedule))
        yield Subject(f"schedule {schedule.name}", run, grants(run))
