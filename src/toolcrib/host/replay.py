"""The past decided again: recorded calls of a crib under rules that are tried.

Above: REST and the console. Below: the audit, the permissions, `policy.simulate`. It must never call or record
anything.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from typing import Any

import anyio.to_thread

from toolcrib.audit import Filters
from toolcrib.host.crib import Crib
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.policy import Rule
from toolcrib.model.principals import Principal
from toolcrib.policy.members import FaultyRequest
from toolcrib.policy.reading import read_line
from toolcrib.policy.rules import Rules
from toolcrib.policy.simulate import Simulation, simulate

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class Trial:
    """Rules that are tried: some added, as people write them, some taken away, and a file for `toolcrib.toml`.

    So many records are looked at, the newest first.
    """

    add: Sequence[str | JsonObject] = ()
    remove: Sequence[str] = ()
    file: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 10_000


async def replay(crib: Crib, trial: Trial) -> Simulation:
    """Decide recorded calls again under the rules that are tried. Raises `rule.invalid` and `rule.unknown`."""
    before = crib.permissions.rules().without(())
    after = await _tried(crib, trial, before)
    parts = [
        await _replay_at(crib, place, records, before, after)
        for place, records in (await _records(crib, trial)).items()
    ]
    found = sorted((each for part in parts for each in part.differences), key=lambda each: -each.record)
    return Simulation(sum(part.compared for part in parts), sum(part.skipped for part in parts), tuple(found))


async def _tried(crib: Crib, trial: Trial, before: Rules) -> Rules:
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
    return before.without(gone).having(*more)


async def _records(crib: Crib, trial: Trial) -> dict[str | None, list[JsonObject]]:
    """The newest records, by the directory that was asked from: tools are looked up there."""
    found: defaultdict[str | None, list[JsonObject]] = defaultdict(list)
    after, left = None, trial.limit
    while left > 0:
        filters = Filters(since=trial.since, until=trial.until, after=after, limit=min(left, _PAGE))
        records = await crib.audit.find(filters)
        for record in records:
            found[_place(record.get("principal"))].append(record)
        if len(records) < filters.limit:
            break
        after, left = records[-1]["id"], left - len(records)
    return found


def _place(principal: Json) -> str | None:
    cwd = principal.get("cwd") if is_object(principal) else None
    return cwd if isinstance(cwd, str) else None


async def _replay_at(
    crib: Crib, place: str | None, records: list[JsonObject], before: Rules, after: Rules
) -> Simulation:
    tools = crib.catalog.at(place).tools

    @cache
    def grants_of(agent: str | None) -> Any:
        return crib.permissions.grants(Principal("owner", "owner", "api", agent=agent, cwd=place))

    work = partial(simulate, records, before, after, tool=tools.get, grants=lambda asker: grants_of(asker.agent))
    return await anyio.to_thread.run_sync(work)
