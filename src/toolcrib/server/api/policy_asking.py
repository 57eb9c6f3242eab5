"""What the routes about permissions share: how faults are told, what is said of a server, how the past is replayed.

Above: `policy` and the routes beside it. Below: the crib. It must never start or contact a server to explain something.
"""

from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import anyio.to_thread
from fastapi import Request, Response

from toolcrib.audit import Filters
from toolcrib.errors import NotFound
from toolcrib.host import Crib
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.policy import Rule
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef
from toolcrib.policy.members import FaultyRequest
from toolcrib.policy.reading import read_line
from toolcrib.policy.rules import Rules
from toolcrib.policy.simulate import Simulation, simulate
from toolcrib.server import problems
from toolcrib.server.api.policy_shapes import SimulateRequest
from toolcrib.server.api.reading import StrictRoute

_PAGE = 1000


class FaultsRoute(StrictRoute):
    """A route that tells every fault of what a person wrote, with its place."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Answer faults under the code they have, as `errors` of the problem."""
        handle = super().get_route_handler()

        async def handle_faults(request: Request) -> Response:
            try:
                return await handle(request)
            except FaultyRequest as error:
                places = [".".join(["body", *filter(None, fault.path.split("/"))]) for fault in error.faults]
                told = zip(places, error.faults, strict=True)
                return problems.response(error, [{"path": at, "message": fault.message} for at, fault in told])

        return handle_faults


async def server_note(crib: Crib, ref: ToolRef, place: Path | None) -> str | None:
    """Why a server that should have a tool does not offer it, as far as that is known."""
    if any(change["ref"] == str(ref) for change in crib.intake.changes(place)):
        return "Its definition changed and waits for a person. Run `toolcrib tools changes`."
    standing = next((each for each in await crib.links.list(place) if each.entry.alias == ref.server), None)
    if standing is None:
        known = ref.server in crib.catalog.at(str(place) if place is not None else None).sources
        return None if known else f"There is no server {ref.server!r}."
    if standing.state == "connected":
        return None
    action = f" Run `{standing.action}`." if standing.action else ""
    return f'Server "{standing.entry.name}": {standing.sentence}{action}'


async def record_of(crib: Crib, number: int) -> JsonObject:
    """One record of the audit."""
    for record in await crib.audit.find(Filters(after=number + 1, limit=1)):
        if record["id"] == number:
            return record
    raise NotFound("audit.unknown", f"There is no record {number}.")


async def replay(crib: Crib, asked: SimulateRequest) -> Simulation:
    """Decide recorded calls again under the rules that are tried."""
    before = crib.permissions.rules().without(())
    after = await _tried(crib, asked, before)
    parts = [
        await _replay_at(crib, place, records, before, after)
        for place, records in (await _records(crib, asked)).items()
    ]
    found = sorted((each for part in parts for each in part.differences), key=lambda each: -each.record)
    return Simulation(sum(part.compared for part in parts), sum(part.skipped for part in parts), tuple(found))


async def _tried(crib: Crib, asked: SimulateRequest, before: Rules) -> Rules:
    permissions = crib.permissions
    gone = [permissions.get(id).id for id in asked.remove]
    more: list[Rule] = []
    if asked.file is not None:
        gone += [rule.id for rule in before.rules if rule.origin.kind == "user" and rule.origin.file is not None]
        more += await permissions.candidates(asked.file, "candidate.toml")
    for number, given in enumerate(asked.add):
        written = read_line(given) if isinstance(given, str) else given.written()
        try:
            more.append(await permissions.draft(written, id=f"added-{number + 1}", by="owner"))
        except FaultyRequest as error:
            faults = [replace(fault, path=f"add/{number}/{fault.path}") for fault in error.faults]
            raise FaultyRequest(error.code, faults) from error
    return before.without(gone).having(*more)


async def _records(crib: Crib, asked: SimulateRequest) -> dict[str | None, list[JsonObject]]:
    """The newest records, by the directory that was asked from: tools are looked up there."""
    found: defaultdict[str | None, list[JsonObject]] = defaultdict(list)
    after, left = None, asked.limit
    while left > 0:
        filters = Filters(since=asked.since, until=asked.until, after=after, limit=min(left, _PAGE))
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
