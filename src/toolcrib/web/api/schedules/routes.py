"""`/api/schedules`: prompts that agents run at set times.

For the owner only; every change is recorded. A schedule made by an agent keeps its creator's limits, even after a
change here.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Depends, Path, Query, Response

from toolcrib.agents.schedules.cadence import following, in_words
from toolcrib.host import Crib
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.schedules import Cadence, Run, Schedule
from toolcrib.web.api.changing import Changing, owner_changes
from toolcrib.web.api.policy.shapes import RemovedShape
from toolcrib.web.api.reading import StrictRoute, json_list, owner_only, path_of
from toolcrib.web.api.resource import Resource
from toolcrib.web.api.schedules.shapes import (
    ReadinessShape,
    RunShape,
    ScheduleChanges,
    ScheduleRequest,
    ScheduleShape,
)

_NEXT_SHOWN = 3
_LONGEST_NAME = 60
_CADENCE = {"cron", "timezone", "every_seconds", "at"}

_Id = Annotated[str, Path(max_length=100, description="The schedule.")]
_Limit = Annotated[int, Query(ge=1, le=1000)]


def routes(crib: Crib) -> Resource:
    """Return the routes of this crib."""
    router = Resource("schedules", StrictRoute)
    _add_collection(router, crib)
    _add_schedules(router, crib)
    _add_switches(router, crib)
    _add_looks(router, crib)
    return router


def _add_collection(router: APIRouter, crib: Crib) -> None:
    owner, changes = Depends(owner_only(crib)), Depends(owner_changes(crib))

    @router.get("", response_model=list[ScheduleShape], dependencies=[owner])
    async def list_schedules() -> Response:
        """List all schedules by name."""
        last = await crib.schedules.last_runs()
        return json_list(_shape(each, last.get(each.id)) for each in await crib.schedules.list())

    @router.post("", response_model=ScheduleShape, response_model_exclude_unset=True, status_code=201)
    async def create_schedule(
        response: Response, change: Annotated[Changing, changes], body: ScheduleRequest
    ) -> JsonObject:
        """Create a schedule. It is active immediately; `readiness` lists what would prevent a run."""
        wanted = await _requested_schedule(crib, change.principal, body)
        schedule = await _record(change, "schedules.create", wanted, crib.schedules.add)
        response.headers["location"] = f"/api/schedules/{schedule.id}"
        return await _schedule_json(crib, schedule)


def _add_schedules(router: APIRouter, crib: Crib) -> None:
    owner, changes = Depends(owner_only(crib)), Depends(owner_changes(crib))

    @router.get("/{schedule_id}", response_model=ScheduleShape, response_model_exclude_unset=True, dependencies=[owner])
    async def show_schedule(schedule_id: _Id) -> JsonObject:
        """Return one schedule with its last run and what would prevent the next one."""
        return await _schedule_json(crib, await crib.schedules.get(schedule_id))

    @router.put("/{schedule_id}", response_model=ScheduleShape, response_model_exclude_unset=True)
    async def replace_schedule(
        change: Annotated[Changing, changes], schedule_id: _Id, body: ScheduleRequest
    ) -> JsonObject:
        """Replace a schedule, keeping its history and whether it is paused."""
        before = await crib.schedules.get(schedule_id)
        wanted = await _requested_schedule(crib, change.principal, body)
        stored: dict[str, Any] = {
            name: getattr(before, name)
            for name in ("id", "created_at", "created_by", "creator", "paused", "paused_by", "reason", "failures")
        }
        changed = replace(wanted, **stored)
        return await _schedule_json(crib, await _record(change, "schedules.change", changed, crib.schedules.replace))

    @router.patch("/{schedule_id}", response_model=ScheduleShape, response_model_exclude_unset=True)
    async def change_schedule(
        change: Annotated[Changing, changes], schedule_id: _Id, body: ScheduleChanges
    ) -> JsonObject:
        """Change the given fields of a schedule and restart its timer."""
        changed = await _with_changes(crib, await crib.schedules.get(schedule_id), body)
        return await _schedule_json(crib, await _record(change, "schedules.change", changed, crib.schedules.replace))

    @router.delete("/{schedule_id}", response_model=RemovedShape)
    async def remove_schedule(change: Annotated[Changing, changes], schedule_id: _Id) -> JsonObject:
        """Remove a schedule and its history. The sessions of its runs are kept."""
        await crib.schedules.get(schedule_id)
        await change.make("schedules.remove", {"id": schedule_id}, lambda: crib.schedules.remove(schedule_id))
        return {"id": schedule_id}


def _add_switches(router: APIRouter, crib: Crib) -> None:
    changes = Depends(owner_changes(crib))

    @router.post("/{schedule_id}/pause", response_model=ScheduleShape, response_model_exclude_unset=True)
    async def pause_schedule(change: Annotated[Changing, changes], schedule_id: _Id) -> JsonObject:
        """Pause a schedule. A run in progress continues."""
        await crib.schedules.get(schedule_id)
        paused = await change.make("schedules.pause", {"id": schedule_id}, lambda: crib.schedules.pause(schedule_id))
        return await _schedule_json(crib, paused)

    @router.post("/{schedule_id}/resume", response_model=ScheduleShape, response_model_exclude_unset=True)
    async def resume_schedule(change: Annotated[Changing, changes], schedule_id: _Id) -> JsonObject:
        """Resume a schedule and reset its failure count."""
        await crib.schedules.get(schedule_id)
        again = await change.make("schedules.resume", {"id": schedule_id}, lambda: crib.schedules.resume(schedule_id))
        return await _schedule_json(crib, again)

    @router.post("/{schedule_id}/run", response_model=RunShape, response_model_exclude_unset=True, status_code=202)
    async def run_schedule(change: Annotated[Changing, changes], schedule_id: _Id) -> JsonObject:
        """Start a run now. Its outcome appears in the history under its `dueAt`."""
        await crib.schedules.get(schedule_id)
        run = await change.make("schedules.run", {"id": schedule_id}, lambda: crib.schedules.run_now(schedule_id))
        return run.to_json()


def _add_looks(router: APIRouter, crib: Crib) -> None:
    owner = Depends(owner_only(crib))

    @router.get("/{schedule_id}/history", response_model=list[RunShape], dependencies=[owner])
    async def list_runs(schedule_id: _Id, limit: _Limit = 50) -> Response:
        """List the runs of a schedule, newest first. The session of each has its transcript."""
        return json_list(run.to_json() for run in await crib.schedules.history(schedule_id, limit))

    @router.get(
        "/{schedule_id}/readiness",
        response_model=ReadinessShape,
        response_model_exclude_unset=True,
        dependencies=[owner],
    )
    async def check_schedule(schedule_id: _Id) -> JsonObject:
        """Check whether a run could start now, without connecting or spending anything."""
        return (await crib.schedules.readiness(await crib.schedules.get(schedule_id))).to_json()


async def _record(change: Changing, kind: str, schedule: Schedule, work: Callable[[Schedule], Any]) -> Schedule:
    return await change.make(kind, schedule.to_json(), lambda: work(schedule))


async def _requested_schedule(crib: Crib, principal: Principal, body: ScheduleRequest) -> Schedule:
    """Return the requested schedule. Raises `agent.unknown`, `session.cwd` or `schedule.cadence`."""
    agent = (await crib.zoo.get(body.agent_id)).agent
    name = " ".join((body.name or "").split()) or " ".join(body.prompt.split())[:_LONGEST_NAME]
    return Schedule(
        id="",
        name=name,
        agent=agent.id,
        prompt=body.prompt,
        cwd=await _directory(body.cwd or principal.cwd or str(crib.settings.default_cwd or await anyio.Path.cwd())),
        cadence=_still_to_come(body.cadence()),
        created_at=datetime.now(UTC),
        mode=body.mode or agent.mode or "default",
        model=body.model,
        tools=tuple(dict.fromkeys(body.tools)),
        limits=body.limits.limits,
        overlap=body.overlap,
        missed=body.missed,
        jitter_seconds=body.jitter_seconds,
        retries=body.retries,
    )


async def _with_changes(crib: Crib, before: Schedule, body: ScheduleChanges) -> Schedule:
    named = body.model_fields_set - _CADENCE - {"agent_id", "cwd", "tools", "limits"}
    changes: dict[str, Any] = {name: getattr(body, name) for name in named}
    if "agent_id" in body.model_fields_set:
        changes["agent"] = (await crib.zoo.get(body.agent_id)).agent.id
    if "cwd" in body.model_fields_set:
        changes["cwd"] = await _directory(body.cwd)
    if "tools" in body.model_fields_set:
        changes["tools"] = tuple(dict.fromkeys(body.tools))
    if "limits" in body.model_fields_set:
        changes["limits"] = body.limits.limits
    if body.model_fields_set & _CADENCE:
        changes["cadence"] = _still_to_come(body.cadence(before.cadence))
    return replace(before, **changes)


async def _directory(text: str) -> str:
    path = anyio.Path(path_of(text))
    if not await path.is_dir():
        raise InvalidRequest("session.cwd", f"{text} is not a directory.")
    return str(await path.resolve())


def _still_to_come(cadence: Cadence) -> Cadence:
    if cadence.at is not None and cadence.at.tzinfo is not None and cadence.at <= datetime.now(UTC):
        message = f"{cadence.at.isoformat()} is in the past."
        raise InvalidRequest("schedule.cadence", message, "Choose a time in the future.")
    return cadence


def _shape(schedule: Schedule, last: Run | None) -> JsonObject:
    first = schedule.next_at
    moments = [] if first is None else [first, *following(schedule.cadence, first, _NEXT_SHOWN - 1)]
    shape: JsonObject = {
        **schedule.to_json(),
        "words": in_words(schedule.cadence),
        "next": [moment.isoformat(timespec="seconds") for moment in moments],
    }
    return shape if last is None else {**shape, "lastRun": last.to_json()}


async def _schedule_json(crib: Crib, schedule: Schedule) -> JsonObject:
    newest = await crib.schedules.history(schedule.id, 1)
    readiness = await crib.schedules.readiness(schedule)
    return {**_shape(schedule, newest[0] if newest else None), "readiness": readiness.to_json()}
