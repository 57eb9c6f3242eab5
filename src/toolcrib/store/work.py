"""Background tasks, as rows; `agents.work` runs them."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, insert, select, update

from toolcrib.model.json import JsonObject, dumps, loads
from toolcrib.model.principals import Principal
from toolcrib.model.sessions import SessionLimits
from toolcrib.model.work import Task, WorkState
from toolcrib.store.audit import moment
from toolcrib.store.engine import Store
from toolcrib.store.schema import work_tasks


async def insert_task(store: Store, task: Task, crib: str) -> None:
    """Add a task."""
    await store.write(insert(work_tasks).values(crib=crib, **_columns(task)))


async def update_task(store: Store, task: Task, crib: str | None = None) -> None:
    """Store the new state of a task; with `crib`, only if no other crib has taken the task."""
    found = update(work_tasks).where(work_tasks.c.id == task.id)
    if crib is not None:
        found = found.where(work_tasks.c.crib == crib)
    await store.write(found.values(**_columns(task)))


async def take_task(store: Store, id: str, crib: str) -> None:
    """Make this crib the one that runs a task."""
    await store.write(update(work_tasks).where(work_tasks.c.id == id).values(crib=crib))


async def load_task(store: Store, id: str) -> Task | None:
    """Return one task."""
    query = select(work_tasks).where(work_tasks.c.id == id)
    row = await store.read(lambda connection: connection.execute(query).first())
    return _task(row) if row is not None else None


async def load_tasks(store: Store, *, crib: str | None = None, state: WorkState | None = None) -> list[Task]:
    """Return the tasks, newest first: of one crib, in one state, or all."""
    query = select(work_tasks).order_by(work_tasks.c.created_at.desc(), work_tasks.c.id)
    if crib is not None:
        query = query.where(work_tasks.c.crib == crib)
    if state is not None:
        query = query.where(work_tasks.c.state == state)
    return [_task(row) for row in await store.read(lambda connection: connection.execute(query).all())]


def _columns(task: Task) -> JsonObject:
    return {
        "id": task.id,
        "agent": task.agent,
        "state": task.state,
        "created_at": moment(task.created_at),
        "ended_at": None if task.ended_at is None else moment(task.ended_at),
        "creator": None if task.creator is None else dumps(task.creator.to_json()),
        "body": dumps(replace(task, creator=None)),
    }


def _task(row: Row[*tuple[Any, ...]]) -> Task:
    body: JsonObject = loads(row.body)
    parts: dict[str, Any] = {
        "created_at": datetime.fromisoformat(body.pop("created_at")).astimezone(UTC),
        "ended_at": None if row.ended_at is None else datetime.fromisoformat(row.ended_at).astimezone(UTC),
        "limits": SessionLimits(**body.pop("limits")),
        "creator": None if row.creator is None else Principal.of_json(loads(row.creator)),
    }
    return Task(**{**body, **parts})
