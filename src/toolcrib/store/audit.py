"""Queries of the audit chain, and the current run of each crib. `gate.audit` defines the records and their chain."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Text,
    and_,
    case,
    cast,
    delete,
    func,
    insert,
    literal,
    literal_column,
    or_,
    select,
    tuple_,
    update,
)

from toolcrib.model.json import dumps
from toolcrib.store.audit_lanes import LANE_SIZE
from toolcrib.store.engine import Store
from toolcrib.store.schema import audit, audit_runs, unescape

LARGEST_PAGE = 1000
MOST_SEARCHED = 100_000
CHECKPOINT = "checkpoint"
"""The phase of records that name the newest records of all lanes. Lists omit them unless they are asked for."""
_LARGEST_ID = 2**63 - 1
_FAILED = '"isError":true'
"""In the body of the outcome of a call that failed, but maybe also among its arguments."""
_TAIL = 400
"""Bytes at the end of a body that contain the members after the arguments, from `isError` on."""
COUNTED = ("decision", "server", "tool", "agent", "door", "session")
"""The columns by which `tally` counts."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Selects the records that match all set fields. `after` continues with records older than that one.

    `failed` selects the outcomes of calls that failed or did not. Every word of `text` must occur somewhere in a
    record, in upper or lower case. Only the newest `MOST_SEARCHED` records of each lane are searched for words.
    """

    server: str | None = None
    tool: str | None = None
    agent: str | None = None
    decision: str | None = None
    phase: str | None = None
    door: str | None = None
    principal: str | None = None
    session: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    after: int | None = None
    limit: int = 100
    text: str | None = None
    failed: bool | None = None


def find(connection: Connection, filters: Filters, lanes: Sequence[int] = ()) -> Sequence[tuple[Any, ...]]:
    """Return number, hash and body of matching records, newest first, at most `limit`.

    With several lanes, the newest of each are merged by time.
    """
    limit = min(max(filters.limit, 1), LARGEST_PAGE)
    if not lanes:
        words = _words(connection, filters)
        query = _raw("id", "hash", "body").where(*_conditions(filters), *words).order_by(audit.c.id.desc())
        return connection.execute(query.limit(limit)).all()
    conditions = _conditions(replace(filters, after=None))
    if filters.after is not None:
        at = connection.execute(select(audit.c.at).where(audit.c.id == _clamp_id(filters.after))).scalar() or ""
        conditions.append(tuple_(audit.c.at, audit.c.id) < tuple_(literal(at), literal(_clamp_id(filters.after))))
    found: list[tuple[Any, ...]] = []
    for lane in lanes:
        here = (audit.c.id > lane * LANE_SIZE, audit.c.id < (lane + 1) * LANE_SIZE)
        words = _words(connection, filters, lane)
        query = _raw("id", "hash", "body", "at").where(*here, *conditions, *words).order_by(audit.c.id.desc())
        found += [tuple(row) for row in connection.execute(query.limit(limit))]
    newest = sorted(found, key=lambda row: (str(row[3]), row[0]), reverse=True)
    return [row[:3] for row in newest[:limit]]


def get(connection: Connection, number: int) -> tuple[Any, ...] | None:
    """Return number, hash and body of one record, or None."""
    row = connection.execute(_raw("id", "hash", "body").where(audit.c.id == _clamp_id(number))).first()
    return None if row is None else tuple(row)


def count(connection: Connection, filters: Filters, lanes: Sequence[int] = ()) -> int:
    """Return the number of all matching records, whatever `limit` is."""
    matching = (*_conditions(filters), *_in_lanes(connection, filters, lanes))
    return connection.execute(select(func.count()).select_from(audit).where(*matching)).scalar_one()


def _in_lanes(connection: Connection, filters: Filters, lanes: Sequence[int]) -> list[ColumnElement[bool]]:
    """Return the conditions on the bodies of these lanes, or of the only one."""
    here = [
        and_(audit.c.id > lane * LANE_SIZE, audit.c.id < (lane + 1) * LANE_SIZE, *_words(connection, filters, lane))
        for lane in lanes
    ]
    return [or_(*here)] if here else _words(connection, filters)


def tally(
    connection: Connection, filters: Filters, lanes: Sequence[int] = ()
) -> tuple[list[tuple[tuple[str | None, ...], int]], int]:
    """Return the number of matching outcomes by their `COUNTED` columns, and how many of all these calls failed."""
    filters = replace(filters, phase="outcome", after=None)
    matching = and_(*_conditions(filters), *_in_lanes(connection, filters, lanes))
    grouped = _raw(*COUNTED, "count(*)").where(matching).group_by(*(audit.c[name] for name in COUNTED))
    rows = [(tuple(_unescape_value(value) for value in row[:-1]), int(row[-1])) for row in connection.execute(grouped)]
    failed = select(func.sum(_has_failed(connection))).select_from(audit).where(matching)
    return rows, connection.execute(failed).scalar() or 0


def _unescape_value(value: object) -> str | None:
    return unescape(value) if isinstance(value, str) else None


def calls_since(
    connection: Connection, since: datetime, *, agent: str | None = None, principal: str | None = None
) -> Sequence[tuple[Any, ...]]:
    """Return server, tool and number of calls since a moment, of all callers or of one agent or principal."""
    conditions = _conditions(Filters(phase="intent", agent=agent, principal=principal, since=since))
    query = _raw("server", "tool", "count(*)").where(*conditions).group_by(audit.c.server, audit.c.tool)
    return connection.execute(query).all()


def _conditions(filters: Filters) -> list[ColumnElement[bool]]:
    plain = ("server", "tool", "agent", "decision", "phase", "door", "principal", "session")
    asked = [(audit.c[name], getattr(filters, name)) for name in plain]
    conditions = [column == value for column, value in asked if value is not None]
    if filters.since is not None:
        conditions.append(audit.c.at >= moment(filters.since))
    if filters.until is not None:
        conditions.append(audit.c.at < moment(filters.until))
    if filters.after is not None:
        conditions.append(audit.c.id < _clamp_id(filters.after))
    return conditions


def _words(connection: Connection, filters: Filters, lane: int = 0) -> list[ColumnElement[bool]]:
    """Return the conditions on the bodies of a lane: how the call ended, and that every word occurs.

    PostgreSQL converts no text that is not UTF-8, which a damaged record may be, so bytes are compared in escaped form.
    """
    words = (filters.text or "").split()
    is_postgres = connection.dialect.name == "postgresql"
    body = func.encode(audit.c.body, "escape") if is_postgres else cast(literal_column("body"), Text)
    ended: list[ColumnElement[bool]] = []
    if filters.failed is not None:
        ended = [audit.c.phase == "outcome", _has_failed(connection) == int(filters.failed)]
    if not words:
        return ended
    texts = [dumps(word)[1:-1] for word in words]
    written = [_escape_bytes(text) if is_postgres else text.decode() for text in texts]
    newest = select(func.max(audit.c.id)).where(audit.c.id < (lane + 1) * LANE_SIZE).scalar_subquery()
    return [*ended, audit.c.id > newest - MOST_SEARCHED, *(body.icontains(text, autoescape=True) for text in written)]


def _has_failed(connection: Connection) -> ColumnElement[int]:
    """Return 1 for outcomes whose own member `isError` is true, and 0 for others, damaged ones included.

    It follows the arguments, and no member after it contains an object. SQLite parses only the likely bodies.
    """
    if connection.dialect.name == "postgresql":
        tail = func.substr(audit.c.body, func.greatest(func.length(audit.c.body) - _TAIL + 1, 1))
        own = func.encode(tail, "escape").regexp_match(_FAILED + r"[^{}]*\}$")
        return case((own, 1), else_=0)
    body = cast(literal_column("body"), Text)
    is_likely = cast(func.substr(literal_column("body"), -_TAIL), Text).contains(_FAILED)
    own = func.json_type(body, "$.isError") == "true"
    return case((~is_likely, 0), (func.json_valid(body) == 0, 0), (own, 1), else_=0)


def _escape_bytes(text: bytes) -> str:
    """Return bytes as PostgreSQL's `encode(…, 'escape')` does: backslashes doubled, other bytes in octal."""
    escaped = {0x5C: "\\\\"}
    return "".join(escaped.get(byte) or (chr(byte) if byte < 128 else f"\\{byte:03o}") for byte in text)


def _clamp_id(number: int) -> int:
    return min(max(number, 0), _LARGEST_ID)


def page(connection: Connection, after: int, size: int) -> Sequence[tuple[Any, ...]]:
    """Return the next whole rows of the same lane in order of their numbers, as stored."""
    end = (after // LANE_SIZE + 1) * LANE_SIZE
    rows = _raw(*audit.columns.keys()).where(audit.c.id > after, audit.c.id < end)
    return connection.execute(rows.order_by(audit.c.id).limit(size)).all()


def _raw(*names: str) -> Select[*tuple[Any, ...]]:
    """Select columns without their types, since a tampered row may contain anything."""
    columns: list[ColumnElement[Any]] = [literal_column(name) for name in names]
    return select(*columns).select_from(audit)


def tail(known: int) -> Select[int, str]:
    """Select number and hash of this record, if it exists, and of the newest one of its lane."""
    start = known // LANE_SIZE * LANE_SIZE
    newest = select(func.max(audit.c.id)).where(audit.c.id > start, audit.c.id < start + LANE_SIZE).scalar_subquery()
    return select(audit.c.id, audit.c.hash).where(audit.c.id.in_((known, newest))).order_by(audit.c.id)


def hashes(connection: Connection, first: int, last: int) -> dict[int, str]:
    """Return the hashes of the existing records with these numbers."""
    query = select(audit.c.id, audit.c.hash).where(audit.c.id.between(first, last))
    return dict(connection.execute(query).all())


def hashes_of(connection: Connection, numbers: Sequence[int]) -> dict[int, str]:
    """Return the hashes of the existing records among these numbers."""
    query = select(audit.c.id, audit.c.hash).where(audit.c.id.in_(numbers))
    return dict(connection.execute(query).all())


def moment(at: datetime) -> str:
    """Format a time as in records: ISO 8601 in UTC with milliseconds, so that text order is time order."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds")


class AuditRun(NamedTuple):
    """One run: the prefix of its calls, the id of its journal if any, and the last record before it."""

    run: str
    journal: str | None
    start: int


async def load_run(store: Store, crib: str) -> AuditRun | None:
    """Return the run of this crib that did not shut down cleanly; None if the last one did."""

    def read(connection: Connection) -> AuditRun | None:
        query = select(audit_runs.c.run, audit_runs.c.journal, audit_runs.c.start).where(audit_runs.c.crib == crib)
        row = connection.execute(query).first()
        return AuditRun(row.run, row.journal, row.start) if row is not None else None

    return await store.read(read)


async def save_run(store: Store, crib: str, run: AuditRun) -> None:
    """Store the run of this crib, replacing the previous one."""
    await store.write(
        delete(audit_runs).where(audit_runs.c.crib == crib),
        insert(audit_runs).values(crib=crib, run=run.run, journal=run.journal, start=run.start),
    )


async def rename_run(store: Store, crib: str, name: str) -> None:
    """Store the run of this crib under another name, so that the crib does not have it any more."""
    await store.write(update(audit_runs).where(audit_runs.c.crib == crib).values(crib=name))


async def end_run(store: Store, crib: str) -> None:
    """Record that the run of this crib shut down cleanly."""
    await store.write(delete(audit_runs).where(audit_runs.c.crib == crib))
