"""Approvals, as stored in the database.

An approval is closed by one statement that matches it only while it is pending, so the first durable answer wins,
whichever process it came through. The exact arguments are removed from the database when it is closed.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BindParameter, Row, bindparam, insert, select, update

from toolcrib.model.approvals import Approval, ApprovalStatus, Decided, Remembering, Scope
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef
from toolcrib.store.audit import moment
from toolcrib.store.batch import Many
from toolcrib.store.engine import Store
from toolcrib.store.schema import approvals

LARGEST_PAGE = 1000
_OPEN = "pending"


@dataclass(frozen=True, slots=True)
class Closing:
    """The end of one approval: `shown` is what remains of its arguments."""

    id: str
    decision: Decided
    at: datetime
    shown: bytes
    by: str | None = None
    reason: str | None = None
    scope: Scope | None = None
    edited: bytes | None = None


async def save_approval(store: Store, approval: Approval, crib: str, binding: str) -> None:
    """Add a pending approval; `crib` is the one that waits for the answer."""
    await store.write(
        insert(approvals).values(
            id=approval.id,
            crib=crib,
            status=approval.status,
            binding=binding,
            created_at=moment(approval.created_at),
            expires_at=moment(approval.expires_at),
            door=approval.door,
            principal=json.dumps(approval.principal.to_json()),
            session=approval.principal.session,
            server=approval.ref.server,
            tool=approval.ref.tool,
            definition_hash=approval.definition_hash,
            call=approval.call,
            why=approval.why,
            arguments=approval.arguments,
            remember=json.dumps(approval.remembering.to_json()),
            detached=approval.is_detached,
        )
    )


async def close_approval(store: Store, closing: Closing, binding: str | None = None) -> bool:
    """Close one approval; return False if it was no longer pending or its binding differs."""
    found = update(approvals).where(approvals.c.id == closing.id, approvals.c.status == _OPEN)
    if binding is not None:
        found = found.where(approvals.c.binding == binding)
    (count,) = await store.write(found.values(**_values(closing)))
    return count == 1


async def close_approvals(store: Store, closings: Sequence[Closing]) -> None:
    """Close those of these approvals that are still pending, in one transaction."""
    if closings:
        rows = [{f"to_{name}": value for name, value in _values(each).items()} for each in closings]
        named = [row | {"this": each.id, "open": _OPEN} for row, each in zip(rows, closings, strict=True)]
        columns: dict[str, BindParameter[Any]] = {name.removeprefix("to_"): bindparam(name) for name in rows[0]}
        open_one = (approvals.c.id == bindparam("this"), approvals.c.status == bindparam("open"))
        await store.write(Many(update(approvals).where(*open_one).values(**columns), named))


def _values(closing: Closing) -> dict[str, Any]:
    return {
        "status": closing.decision,
        "arguments": closing.shown,
        "edited": closing.edited,
        "scope": closing.scope,
        "decided_at": moment(closing.at),
        "decided_by": closing.by,
        "reason": closing.reason,
        "remember": None,
    }


async def replace_edit(store: Store, id: str, shown: bytes) -> None:
    """Store the redacted form of the arguments that a person edited."""
    await store.write(update(approvals).where(approvals.c.id == id).values(edited=shown))


async def use_approval(store: Store, id: str, at: datetime) -> bool:
    """Mark the answer of an approved call as delivered; return False if it was delivered before."""
    unused = (approvals.c.id == id, approvals.c.status == "approved", approvals.c.used_at.is_(None))
    (count,) = await store.write(update(approvals).where(*unused).values(used_at=moment(at)))
    return count == 1


async def load_edits(store: Store, crib: str, *, with_unused: bool = True) -> list[tuple[str, bytes]]:
    """Return id and arguments of this crib's newest decided approvals with edited arguments.

    Without `with_unused`, those whose answers can still be fetched are left out.
    """
    decided = (approvals.c.crib == crib, approvals.c.status != _OPEN, approvals.c.edited.is_not(None))
    used = ~approvals.c.detached | approvals.c.used_at.is_not(None)
    query = (
        select(approvals.c.id, approvals.c.edited)
        .where(*decided, *(() if with_unused else (used,)))
        .order_by(approvals.c.created_at.desc())
        .limit(LARGEST_PAGE)
    )
    rows = await store.read(lambda connection: connection.execute(query).all())
    return [(row.id, bytes(row.edited)) for row in rows]


async def load_approval(store: Store, id: str) -> tuple[Approval, str, str] | None:
    """Return one approval with the crib that waits for it and its binding."""
    query = select(approvals).where(approvals.c.id == id)
    row = await store.read(lambda connection: connection.execute(query).one_or_none())
    return None if row is None else (_approval(row), row.crib, row.binding)


async def load_approvals(
    store: Store,
    *,
    status: ApprovalStatus | None = None,
    session: str | None = None,
    limit: int = LARGEST_PAGE,
) -> list[Approval]:
    """Return the approvals that match all filters, newest first."""
    query = select(approvals).order_by(approvals.c.created_at.desc(), approvals.c.id)
    if status is not None:
        query = query.where(approvals.c.status == status)
    if session is not None:
        query = query.where(approvals.c.session == session)
    bounded = query.limit(min(max(limit, 1), LARGEST_PAGE))
    rows: Sequence[Row[*tuple[Any, ...]]] = await store.read(lambda connection: connection.execute(bounded).all())
    return [_approval(row) for row in rows]


async def load_answered(store: Store, ref: ToolRef, definition_hash: str, limit: int) -> list[Approval]:
    """Return the newest approvals of one definition of a tool that a person approved or denied."""
    answered = approvals.c.status.in_(("approved", "denied"))
    same = (approvals.c.server == ref.server, approvals.c.tool == ref.tool)
    query = select(approvals).where(answered, *same, approvals.c.definition_hash == definition_hash)
    newest = query.order_by(approvals.c.created_at.desc(), approvals.c.id).limit(limit)
    rows: Sequence[Row[*tuple[Any, ...]]] = await store.read(lambda connection: connection.execute(newest).all())
    return [_approval(row) for row in rows]


async def load_decided(store: Store, ids: Collection[str]) -> list[Approval]:
    """Return those of these approvals that are no longer pending."""
    query = select(approvals).where(approvals.c.id.in_(ids), approvals.c.status != _OPEN)
    rows: Sequence[Row[*tuple[Any, ...]]] = await store.read(lambda connection: connection.execute(query).all())
    return [_approval(row) for row in rows]


async def load_detached(store: Store, ref: ToolRef, definition_hash: str, at: datetime) -> list[Approval]:
    """Return the pending approvals of one definition of a tool that have no waiting call and have not expired."""
    query = select(approvals).where(
        approvals.c.status == _OPEN,
        approvals.c.detached,
        approvals.c.server == ref.server,
        approvals.c.tool == ref.tool,
        approvals.c.definition_hash == definition_hash,
        approvals.c.expires_at > moment(at),
    )
    rows: Sequence[Row[*tuple[Any, ...]]] = await store.read(lambda connection: connection.execute(query).all())
    return [_approval(row) for row in rows]


async def load_asking_cribs(store: Store) -> set[str]:
    """Return the cribs that have pending approvals."""
    query = select(approvals.c.crib).distinct().where(approvals.c.status == _OPEN)
    return await store.read(lambda connection: set(connection.execute(query).scalars()))


async def load_orphans(
    store: Store, cribs: Collection[str], before: datetime, *, with_detached: bool
) -> list[Approval]:
    """Return pending approvals without a waiter: those of ended cribs, and expired ones.

    Without `with_detached`, those of ended cribs that have no waiting call are left out: their answers can be fetched.
    """
    ended = approvals.c.crib.in_(cribs)
    if not with_detached:
        ended &= ~approvals.c.detached
    orphaned = ended | (approvals.c.expires_at < moment(before))
    query = select(approvals).where(approvals.c.status == _OPEN, orphaned).limit(LARGEST_PAGE)
    rows: Sequence[Row[*tuple[Any, ...]]] = await store.read(lambda connection: connection.execute(query).all())
    return [_approval(row) for row in rows]


def _approval(row: Row[*tuple[Any, ...]]) -> Approval:
    return Approval(
        id=row.id,
        status=row.status,
        door=row.door,
        principal=_principal(row.principal),
        ref=ToolRef(row.server, row.tool),
        definition_hash=row.definition_hash,
        arguments=bytes(row.arguments),
        why=row.why,
        created_at=_time(row.created_at),
        expires_at=_time(row.expires_at),
        call=row.call,
        edited=None if row.edited is None else bytes(row.edited),
        scope=row.scope,
        decided_at=None if row.decided_at is None else _time(row.decided_at),
        decided_by=row.decided_by,
        reason=row.reason,
        remembering=Remembering() if row.remember is None else Remembering.of_json(json.loads(row.remember)),
        is_detached=bool(row.detached),
    )


def _principal(stored: str) -> Principal:
    return Principal.of_json(json.loads(stored))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
