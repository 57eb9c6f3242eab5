"""Questions to a person, as the database keeps them.

A question is closed by one statement that finds it only while it is open: whoever's statement is durable first has
decided, whichever process they asked. The exact arguments leave the database with the question's end.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BindParameter, Row, bindparam, insert, select, update

from toolcrib.model.approvals import Approval, ApprovalStatus, Decided, Scope
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
    """The end of one question: `shown` is what stays of its arguments."""

    id: str
    decision: Decided
    at: datetime
    shown: bytes
    by: str | None = None
    reason: str | None = None
    scope: Scope | None = None
    edited: bytes | None = None


async def save_approval(store: Store, approval: Approval, crib: str, binding: str) -> None:
    """Add an open question; `crib` is who waits for the answer."""
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
        )
    )


async def close_approval(store: Store, closing: Closing, binding: str | None = None) -> bool:
    """Close one question; false if it was no longer open, or is not bound as `binding` says."""
    found = update(approvals).where(approvals.c.id == closing.id, approvals.c.status == _OPEN)
    if binding is not None:
        found = found.where(approvals.c.binding == binding)
    (count,) = await store.write(found.values(**_values(closing)))
    return count == 1


async def close_approvals(store: Store, closings: Sequence[Closing]) -> None:
    """Close those of these questions that are still open, in one transaction."""
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
    }


async def replace_edit(store: Store, id: str, shown: bytes) -> None:
    """Keep this of the arguments that a person put in place of those asked about."""
    await store.write(update(approvals).where(approvals.c.id == id).values(edited=shown))


async def load_approval(store: Store, id: str) -> tuple[Approval, str, str] | None:
    """One question with who waits for it and what its answer is bound to."""
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
    """The questions that fit all that is set, the newest first."""
    query = select(approvals).order_by(approvals.c.created_at.desc(), approvals.c.id)
    if status is not None:
        query = query.where(approvals.c.status == status)
    if session is not None:
        query = query.where(approvals.c.session == session)
    bounded = query.limit(min(max(limit, 1), LARGEST_PAGE))
    rows: Sequence[Row[*tuple[Any, ...]]] = await store.read(lambda connection: connection.execute(bounded).all())
    return [_approval(row) for row in rows]


async def load_decided(store: Store, ids: Collection[str]) -> list[Approval]:
    """Those of these questions that are no longer open."""
    query = select(approvals).where(approvals.c.id.in_(ids), approvals.c.status != _OPEN)
    rows: Sequence[Row[*tuple[Any, ...]]] = await store.read(lambda connection: connection.execute(query).all())
    return [_approval(row) for row in rows]


async def load_orphans(store: Store, crib: str, before: datetime) -> list[Approval]:
    """Some open questions that nobody waits for: those of an earlier run of this crib, and any that ran out."""
    orphaned = (approvals.c.crib == crib) | (approvals.c.expires_at < moment(before))
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
    )


def _principal(stored: str) -> Principal:
    return Principal.of_json(json.loads(stored))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
