"""Marks of conversations, as stored in the database. `toolcrib.gate.marks` defines their meaning."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import delete, insert, select, union, update

from toolcrib.model.marks import Mark, MarkingCall
from toolcrib.model.tools import ToolRef
from toolcrib.store.audit import moment
from toolcrib.store.batch import Many
from toolcrib.store.engine import Store
from toolcrib.store.schema import marks, schedules, sessions, work_tasks


@dataclass(frozen=True, slots=True)
class MarkRow:
    """One call that set a mark, and when the mark ends, if it does."""

    conversation: str
    mark: Mark
    call: MarkingCall
    until: datetime | None


async def load_marks(store: Store, now: datetime, conversation: str | None = None) -> list[MarkRow]:
    """Return the marks that hold at `now`, of all conversations or of one, oldest first."""
    query = select(marks).where((marks.c.until.is_(None)) | (marks.c.until > moment(now)))
    if conversation is not None:
        query = query.where(marks.c.conversation == conversation)
    ordered = query.order_by(marks.c.at, marks.c.audit_id)
    rows = await store.read(lambda connection: connection.execute(ordered).all())
    return [
        MarkRow(row.conversation, row.mark, MarkingCall(row.audit_id, ToolRef(row.server, row.tool), _time(row.at)),
                None if row.until is None else _time(row.until))
        for row in rows
    ]  # fmt: skip


async def save_marks(store: Store, rows: Sequence[MarkRow]) -> None:
    """Add calls that set marks."""
    values = [
        {
            "conversation": row.conversation,
            "mark": row.mark,
            "audit_id": row.call.audit_id,
            "server": row.call.ref.server,
            "tool": row.call.ref.tool,
            "at": moment(row.call.at),
            "until": None if row.until is None else moment(row.until),
        }
        for row in rows
    ]
    await store.write(Many(insert(marks), values))


async def prolong_marks(store: Store, conversation: str, until: datetime) -> None:
    """Let all marks of a conversation hold until a later time."""
    await store.write(update(marks).where(marks.c.conversation == conversation).values(until=moment(until)))


async def has_started(store: Store, session: str) -> bool:
    """Return whether a session, schedule or work task was started by this session or by one that it started."""
    id = session.encode()
    tables = (sessions, schedules, work_tasks)
    found = union(*(select(each.c.creator).where(each.c.creator.is_not(None)) for each in tables))
    rows = await store.read(lambda connection: connection.execute(found).scalars().all())
    return any(id in bytes(creator) for creator in rows)


async def delete_marks(store: Store, conversation: str) -> int:
    """Remove the marks of a conversation. Returns how many rows were removed."""
    (gone,) = await store.write(delete(marks).where(marks.c.conversation == conversation))
    return gone


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
