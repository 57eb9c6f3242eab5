"""Schedules and their runs, as rows; `agents.schedules` runs them.

A run is claimed by its key (schedule, due time, attempt): of two cribs that try, one finds the key taken and skips the
run.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Row, delete, func, insert, select, update

from toolcrib.model.json import JsonObject, dumps, loads
from toolcrib.model.principals import Principal
from toolcrib.model.schedules import Cadence, Run, Schedule
from toolcrib.model.sessions import SessionLimits
from toolcrib.store.audit import moment
from toolcrib.store.batch import ConstraintError
from toolcrib.store.engine import Store
from toolcrib.store.new_rows import insert_new
from toolcrib.store.schema import schedule_runs, schedules


async def load_schedules(store: Store) -> list[Schedule]:
    """Return all schedules, by name."""
    query = select(schedules).order_by(schedules.c.name, schedules.c.id)
    return [_schedule(row) for row in await store.read(lambda connection: connection.execute(query).all())]


async def load_schedule(store: Store, id: str) -> Schedule | None:
    """Return one schedule."""
    query = select(schedules).where(schedules.c.id == id)
    row = await store.read(lambda connection: connection.execute(query).first())
    return _schedule(row) if row is not None else None


async def save_schedule(store: Store, schedule: Schedule) -> None:
    """Add a schedule."""
    await store.write(insert(schedules).values(**_columns(schedule)))


async def revise_schedule(store: Store, id: str, change: Callable[[Schedule], Schedule]) -> Schedule | None:
    """Change the current state of a schedule; None if it is missing. `change` is retried after a concurrent write."""
    query = select(schedules).where(schedules.c.id == id)
    while True:
        row = await store.read(lambda connection: connection.execute(query).first())
        if row is None:
            return None
        kept = _schedule(row)
        revised = change(kept)
        if revised == kept:
            return kept
        as_read = (schedules.c.id == id, schedules.c.body == row.body)
        (written,) = await store.write(update(schedules).where(*as_read).values(**_columns(revised)))
        if written:
            return revised


async def delete_schedule(store: Store, id: str) -> bool:
    """Delete a schedule with its runs; return False if its id does not exist."""
    (gone,) = await store.write(delete(schedules).where(schedules.c.id == id))
    return gone == 1


async def claim_run(store: Store, run: Run, crib: str) -> bool:
    """Claim a run for this crib; return False if another one was first."""
    try:
        (claimed,) = await store.write(insert_new(schedule_runs).values(crib=crib, **_run_columns(run)))
    except ConstraintError:  # the schedule was deleted
        return False
    return claimed == 1


async def end_run(store: Store, run: Run, crib: str) -> None:
    """Store the outcome of a run, unless another crib has it by now."""
    mine = (*_key(run.schedule, run.due_at, run.attempt), schedule_runs.c.crib == crib)
    await store.write(update(schedule_runs).where(*mine).values(**_run_columns(run)))


async def take_run(store: Store, schedule: str, due_at: datetime, attempt: int, crib: str) -> Run | None:
    """Make this crib the one that has a run, and return it; None if it is missing or has ended."""
    key = _key(schedule, due_at, attempt)
    await store.write(update(schedule_runs).where(*key, schedule_runs.c.state == "running").values(crib=crib))
    query = select(schedule_runs).where(*key, schedule_runs.c.state == "running", schedule_runs.c.crib == crib)
    row = await store.read(lambda connection: connection.execute(query).first())
    return _run(row) if row is not None else None


def _key(schedule: str, due_at: datetime, attempt: int) -> tuple[ColumnElement[bool], ...]:
    return (
        schedule_runs.c.schedule_id == schedule,
        schedule_runs.c.due_at == moment(due_at),
        schedule_runs.c.attempt == attempt,
    )


async def load_runs(store: Store, schedule: str, limit: int = 50) -> list[Run]:
    """Return the runs of a schedule, newest first."""
    query = (
        select(schedule_runs)
        .where(schedule_runs.c.schedule_id == schedule)
        .order_by(schedule_runs.c.started_at.desc(), schedule_runs.c.attempt.desc())
        .limit(limit)
    )
    return [_run(row) for row in await store.read(lambda connection: connection.execute(query).all())]


async def load_last_runs(store: Store) -> list[Run]:
    """Return the newest run of each schedule."""
    newest = (schedule_runs.c.started_at.desc(), schedule_runs.c.attempt.desc())
    place = func.row_number().over(partition_by=schedule_runs.c.schedule_id, order_by=newest).label("place")
    ranked = select(schedule_runs, place).subquery()
    query = select(ranked).where(ranked.c.place == 1)
    return [_run(row) for row in await store.read(lambda connection: connection.execute(query).all())]


async def load_running(store: Store, crib: str | None = None, schedule: str | None = None) -> list[Run]:
    """Return the active runs of a crib or a schedule; those of a crib that just started were interrupted."""
    query = select(schedule_runs).where(schedule_runs.c.state == "running")
    if crib is not None:
        query = query.where(schedule_runs.c.crib == crib)
    if schedule is not None:
        query = query.where(schedule_runs.c.schedule_id == schedule)
    return [_run(row) for row in await store.read(lambda connection: connection.execute(query).all())]


def _columns(schedule: Schedule) -> JsonObject:
    bare = replace(schedule, creator=None)
    return {
        "id": schedule.id,
        "name": schedule.name,
        "next_at": None if schedule.next_at is None else moment(schedule.next_at),
        "creator": None if schedule.creator is None else dumps(schedule.creator.to_json()),
        "body": dumps(bare),
    }


def _schedule(row: Row[*tuple[Any, ...]]) -> Schedule:
    body: JsonObject = loads(row.body)
    cadence: JsonObject = body.pop("cadence")
    at = cadence.pop("at")
    parts: dict[str, Any] = {
        "cadence": Cadence(**cadence, at=_time(at)),
        "limits": SessionLimits(**body.pop("limits")),
        "tools": tuple(body.pop("tools")),
        "created_at": datetime.fromisoformat(body.pop("created_at")),
        "next_at": _time(body.pop("next_at")),
        "creator": None if row.creator is None else Principal.of_json(loads(row.creator)),
    }
    return Schedule(**{**body, **parts})


def _run_columns(run: Run) -> JsonObject:
    return {
        "schedule_id": run.schedule,
        "due_at": moment(run.due_at),
        "attempt": run.attempt,
        "state": run.state,
        "started_at": moment(run.started_at),
        "ended_at": None if run.ended_at is None else moment(run.ended_at),
        "session": run.session,
        "reason": run.reason,
        "cost_usd": run.cost_usd,
    }


def _run(row: Row[*tuple[Any, ...]]) -> Run:
    return Run(
        schedule=row.schedule_id,
        due_at=datetime.fromisoformat(row.due_at).astimezone(UTC),
        attempt=row.attempt,
        state=row.state,
        started_at=datetime.fromisoformat(row.started_at).astimezone(UTC),
        session=row.session,
        ended_at=_time(row.ended_at),
        reason=row.reason,
        cost_usd=row.cost_usd,
    )


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)
