"""Simulation of rule changes on the recorded calls of a crib.

Must never call a tool or record anything.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from typing import Any, TypeAlias

import anyio.to_thread

from toolcrib.gate.marks import conversation_of
from toolcrib.gate.policy.decide import Grants
from toolcrib.gate.policy.fields import FaultyRequest
from toolcrib.gate.policy.rule_parser import read_line
from toolcrib.gate.policy.rules import Rules
from toolcrib.gate.policy.simulate import Simulation, simulate
from toolcrib.host.crib import Crib
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.policy import Rule
from toolcrib.model.principals import Principal
from toolcrib.model.tools import Tool, ToolRef
from toolcrib.store.audit import Filters

_PAGE = 1000
RecordsByProject: TypeAlias = Mapping[str | None, Sequence[JsonObject]]
"""Audit records by the directory of the call."""
Regrant: TypeAlias = Callable[[Grants], Grants]


@dataclass(frozen=True, slots=True)
class Trial:
    """Rule changes to try: rules to add, rules to remove, and a replacement for `toolcrib.toml`.

    `limit` records are examined, newest first, only those of `agent` and of `session` if they are set.
    """

    add: Sequence[str | JsonObject] = ()
    remove: Sequence[str] = ()
    file: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 10_000
    agent: str | None = None
    session: str | None = None


async def replay(crib: Crib, trial: Trial) -> Simulation:
    """Decide recorded calls again under the changed rules. Raises `rule.invalid` and `rule.unknown`."""
    before = crib.permissions.rules().without(())
    after = await _changed_rules(crib, trial, before)
    return await replay_records(crib, await find_records(crib, trial), before, after)


async def replay_records(
    crib: Crib, records: RecordsByProject, before: Rules, after: Rules, regrant: Regrant | None = None
) -> Simulation:
    """Decide the calls of these records again. `regrant` returns the grants of a caller after the change."""
    parts = [await _replay_at(crib, project, some, before, after, regrant) for project, some in records.items()]
    found = sorted((each for part in parts for each in part.differences), key=lambda each: -each.record)
    return Simulation(sum(part.compared for part in parts), sum(part.skipped for part in parts), tuple(found))


async def _changed_rules(crib: Crib, trial: Trial, before: Rules) -> Rules:
    permissions = crib.permissions
    gone = [permissions.get(id).id for id in trial.remove]
    more: list[Rule] = []
    if trial.file is not None:
        gone += [rule.id for rule in before.rules if rule.origin.kind == "user" and rule.origin.file is not None]
        more += await permissions.candidates(trial.file, "candidate.toml")
    for number, given in enumerate(trial.add):
        written = read_line(given) if isinstance(given, str) else given
        try:
            more.append(await permissions.draft(written, id=f"added-{number + 1}", by="owner"))
        except FaultyRequest as error:
            faults = [replace(fault, path=f"add/{number}/{fault.path}") for fault in error.faults]
            raise FaultyRequest(error.code, faults) from error
    return before.without(gone).with_rules(*more)


async def find_records(crib: Crib, trial: Trial) -> RecordsByProject:
    """Return the newest records, by the directory of the call, in which its tools are looked up."""
    found: defaultdict[str | None, list[JsonObject]] = defaultdict(list)
    after, left = None, trial.limit
    while left > 0:
        filters = Filters(
            agent=trial.agent,
            session=trial.session,
            since=trial.since,
            until=trial.until,
            after=after,
            limit=min(left, _PAGE),
        )
        records = await crib.audit.find(filters)
        for record in records:
            found[_project(record.get("principal"))].append(record)
        if len(records) < filters.limit:
            break
        after, left = records[-1]["id"], left - len(records)
    return found


def _project(principal: Json) -> str | None:
    cwd = principal.get("cwd") if is_object(principal) else None
    return cwd if isinstance(cwd, str) else None


async def _replay_at(
    crib: Crib,
    project: str | None,
    records: Sequence[JsonObject],
    before: Rules,
    after: Rules,
    regrant: Regrant | None,
) -> Simulation:
    snapshot = crib.catalog.at(project)

    def find(ref: ToolRef) -> Tool | None:
        return snapshot.tools.get(snapshot.canonical(ref))

    @cache
    def grants_of(agent: str | None) -> Any:
        return crib.permissions.grants(Principal("owner", "owner", "api", agent=agent, cwd=project))

    @cache
    def grants_after(agent: str | None) -> Any:
        return grants_of(agent) if regrant is None else regrant(grants_of(agent))

    work = partial(
        simulate,
        records,
        before,
        after,
        tool=find,
        grants=lambda principal: grants_of(principal.agent),
        grants_after=lambda principal: grants_after(principal.agent),
        sets=lambda principal, tool: (conversation_of(principal), crib.gate.marks.due(principal, tool)),
    )
    return await anyio.to_thread.run_sync(work)
