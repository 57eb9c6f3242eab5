"""Sessions and their events, as rows; `agents.sessions` runs them.

An event is a row with the next number of its session: a concurrent writer violates the key, and its whole write is
rolled back. Events and the resulting state are written in one transaction.

In a database that cribs share, the epoch fences writers: a crib claims a session by raising its epoch, and a write with
an older one fails. The state is updated first, which locks the row of the session; the statement that adds an event
then reads the epoch from it, and finds none if another crib has claimed the session.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, bindparam, delete, func, insert, literal, or_, select, update

from toolcrib.model.json import JsonObject, dumps, loads
from toolcrib.model.principals import Principal
from toolcrib.model.sessions import Session, SessionEvent, SessionLimits, SessionState, Spent
from toolcrib.store.audit import moment
from toolcrib.store.batch import Many, Statement
from toolcrib.store.engine import Store
from toolcrib.store.schema import session_events, sessions

UNFINISHED: tuple[SessionState, ...] = ("starting", "running", "waiting")
"""The states of a session in the middle of a turn."""


_NAMES = tuple(column.name for column in sessions.c)
# Written constantly while agents run, so they are compiled once.
_ADD = insert(session_events)
_CHANGE = update(sessions).where(sessions.c.id == bindparam("which"))
_CHANGE_FENCED = _CHANGE.where(sessions.c.epoch == bindparam("held"))
_HELD = (
    select(sessions.c.epoch)
    .where(sessions.c.id == bindparam("owned"), sessions.c.epoch == bindparam("held"))
    .scalar_subquery()
)
# The epoch is not null: an event of a session that another crib has claimed violates that.
_ADD_FENCED = insert(session_events).values(epoch=_HELD)


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """Selects sessions, the newest `limit` of them; None means any."""

    cwd: str | None = None
    agent: str | None = None
    state: SessionState | None = None
    limit: int = 200
    words: str | None = None
    """Words that must all occur in the title, id, agent or directory, in any case."""
    offset: int = 0


async def insert_session(store: Store, session: Session, crib: str) -> None:
    """Add a session."""
    await store.write(insert(sessions).values(id=session.id, crib=crib, **_columns(session)))


async def insert_fork(store: Store, session: Session, crib: str, parent: str) -> None:
    """Add a session that begins with the events of another one."""
    copied = select(
        literal(session.id),
        *(session_events.c[name] for name in ("seq", "at", "kind", "parent", "data")),
    ).where(session_events.c.session_id == parent, session_events.c.seq <= session.last_seq)
    columns = ["session_id", "seq", "at", "kind", "parent", "data"]  # the copy begins with epoch 0
    await store.write(
        insert(sessions).values(id=session.id, crib=crib, **_columns(session)),
        insert(session_events).from_select(columns, copied),
    )


async def write_progress(
    store: Store, events: Sequence[SessionEvent], changed: Sequence[Session], crib: str, epochs: Mapping[str, int]
) -> None:
    """Store these events and the new states of these sessions atomically.

    `epochs` are those that this crib holds, by session. Raises `ConstraintError` if another crib has claimed a session
    that has events.
    """
    statements: list[Statement] = []
    newest = {event.session: event.seq for event in events}
    if store.shared:
        rows = [{"which": session.id, "held": session.epoch, **_columns(session)} for session in changed]
        last = [{"which": id, "held": epochs[id], "last_seq": seq} for id, seq in newest.items()]
        added = [{**_row(event), "owned": event.session, "held": epochs[event.session]} for event in events]
        change, add = _CHANGE_FENCED, _ADD_FENCED
    else:
        rows = [{"which": session.id, "crib": crib, **_columns(session)} for session in changed]
        last = [{"which": id, "last_seq": seq} for id, seq in newest.items()]
        added = [{**_row(event), "epoch": epochs[event.session]} for event in events]
        change, add = _CHANGE, _ADD
    if changed:
        statements.append(Many(change, rows))
    if events:
        statements.append(Many(change, last))
        statements.append(Many(add, added))
    await store.write(*statements)


async def claim_session(store: Store, id: str, crib: str, epoch: int) -> bool:
    """Make this crib the only one that may write events of a session, if its epoch is still this one."""
    unchanged = (sessions.c.id == id, sessions.c.epoch == epoch)
    (claimed,) = await store.write(update(sessions).where(*unchanged).values(crib=crib, epoch=epoch + 1))
    return claimed == 1


async def delete_session(store: Store, id: str) -> bool:
    """Delete a session with its events; return False if its id does not exist."""
    (gone,) = await store.write(delete(sessions).where(sessions.c.id == id))
    return gone == 1


async def load_session(store: Store, id: str) -> tuple[Session, str] | None:
    """Return one session, and the crib that last ran it."""
    query = select(sessions).where(sessions.c.id == id)
    row = await store.read(lambda connection: connection.execute(query).first())
    return (_session(row), row.crib) if row is not None else None


async def load_sessions(store: Store, wanted: SessionFilter) -> list[Session]:
    """Return sessions, most recently used first."""
    query = select(sessions).where(*_conditions(wanted)).order_by(sessions.c.updated_at.desc(), sessions.c.id)
    query = query.limit(wanted.limit).offset(wanted.offset)
    return [_session(row) for row in await store.read(lambda connection: connection.execute(query).all())]


async def count_matching(store: Store, wanted: SessionFilter) -> int:
    """Return the number of all matching sessions, whatever `limit` and `offset` are."""
    query = select(func.count()).select_from(sessions).where(*_conditions(wanted))
    return await store.read(lambda connection: connection.execute(query).scalar_one())


def _conditions(wanted: SessionFilter) -> list[ColumnElement[bool]]:
    columns = (sessions.c.cwd, wanted.cwd), (sessions.c.agent, wanted.agent), (sessions.c.state, wanted.state)
    conditions = [column == value for column, value in columns if value is not None]
    searched = (sessions.c.title, sessions.c.id, sessions.c.agent, sessions.c.cwd)
    words = (wanted.words or "").split()
    found = [or_(*(column.icontains(word, autoescape=True) for column in searched)) for word in words]
    return [*conditions, *found]


async def load_unfinished(store: Store, crib: str) -> list[Session]:
    """Return the sessions that this crib left in the middle of a turn."""
    query = select(sessions).where(sessions.c.crib == crib, sessions.c.state.in_(UNFINISHED))
    return [_session(row) for row in await store.read(lambda connection: connection.execute(query).all())]


async def load_runtimes(store: Store, cwd: str | None) -> set[str]:
    """Return the ids of the sessions of a directory, or of all, and their runtimes' ids."""
    query = select(sessions.c.id, sessions.c.runtime)
    query = query if cwd is None else query.where(sessions.c.cwd == cwd)
    rows = await store.read(lambda connection: connection.execute(query).all())
    return {id for row in rows for id in row if id is not None}


async def session_of_runtime(store: Store, runtime: str) -> Session | None:
    """Return the newest session that a runtime records under this id."""
    query = select(sessions).where((sessions.c.runtime == runtime) | (sessions.c.id == runtime))
    newest = query.order_by(sessions.c.updated_at.desc()).limit(1)
    row = await store.read(lambda connection: connection.execute(newest).first())
    return None if row is None else _session(row)


async def count_sessions(store: Store, cwd: str) -> int:
    """Return the number of sessions of a directory."""
    query = select(func.count()).select_from(sessions).where(sessions.c.cwd == cwd)
    return await store.read(lambda connection: connection.execute(query).scalar_one())


async def load_events(store: Store, id: str, after: int, limit: int) -> list[SessionEvent]:
    """Return the events of a session after this number, in order."""
    query = (
        select(session_events)
        .where(session_events.c.session_id == id, session_events.c.seq > after)
        .order_by(session_events.c.seq)
        .limit(limit)
    )

    def work(connection: Connection) -> list[SessionEvent]:
        return [_event(row) for row in connection.execute(query)]

    return await store.read(work)


async def matching_sessions(store: Store, prefix: str, limit: int = 3) -> list[str]:
    """Return the ids with this prefix, so that users need not type a whole one."""
    query = select(sessions.c.id).where(or_(sessions.c.id == prefix, sessions.c.id.startswith(prefix, autoescape=True)))
    rows = await store.read(lambda connection: connection.execute(query.limit(limit)).all())
    return [row.id for row in rows]


def _columns(session: Session) -> JsonObject:
    return {
        "runtime": session.runtime,
        "agent": session.agent,
        "cwd": session.cwd,
        "source": session.source,
        "mode": session.mode,
        "model": session.model,
        "title": session.title,
        "runner": session.runner,
        "state": session.state,
        "reason": session.reason,
        "creator": None if session.creator is None else dumps(session.creator.to_json()),
        "forked_from": session.forked_from,
        "fork_due": session.is_fork_due,
        "last_seq": session.last_seq,
        "spent": dumps(session.spent),
        "limits": dumps(session.limits),
        "created_at": moment(session.created_at),
        "updated_at": moment(session.updated_at),
    }


def _session(row: Row[*tuple[Any, ...]]) -> Session:
    kept = dict(zip(_NAMES, row, strict=True))  # looking up names in a row is slow, and lists are long
    return Session(
        id=kept["id"],
        source=kept["source"],
        mode=kept["mode"],
        cwd=kept["cwd"],
        created_at=_time(kept["created_at"]),
        updated_at=_time(kept["updated_at"]),
        agent=kept["agent"],
        model=kept["model"],
        title=kept["title"],
        runner=kept["runner"],
        runtime=kept["runtime"],
        state=kept["state"],
        reason=kept["reason"],
        creator=None if kept["creator"] is None else Principal.of_json(loads(kept["creator"])),
        forked_from=kept["forked_from"],
        is_fork_due=kept["fork_due"],
        spent=Spent(**loads(kept["spent"])),
        limits=SessionLimits(**loads(kept["limits"])),
        last_seq=kept["last_seq"],
        epoch=kept["epoch"],
    )


def _row(event: SessionEvent) -> JsonObject:
    return {
        "session_id": event.session,
        "seq": event.seq,
        "at": event.at,
        "kind": event.kind,
        "parent": event.parent,
        "data": dumps(event.data),
    }


def _event(row: Row[*tuple[Any, ...]]) -> SessionEvent:
    session, seq, at, kind, parent, data, _ = row
    return SessionEvent(seq, at, session, kind, loads(data), parent)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
