"""Binds remembered answers, and what tokens started, to a token's id instead of its name.

A token that is younger than the answer or the schedule is a later one of the same name: it gets neither.
"""

import hashlib
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

_REVOKED = "revoked"
"""An id that no token has."""


def upgrade() -> None:
    """Add the id to every stored principal that is a token."""
    connection = op.get_bind()
    names = connection.execute(sa.text("SELECT name, digest, created_at FROM tokens"))
    tokens = {row.name: (hashlib.sha256(bytes.fromhex(row.digest)).hexdigest()[:32], row.created_at) for row in names}
    remembered = "SELECT id, principal, created_at FROM rules WHERE principal IS NOT NULL AND origin = 'remembered'"
    for row in connection.execute(sa.text(remembered)).all():
        bound = _bound(json.loads(row.principal), tokens, row.created_at)
        change = sa.text("UPDATE rules SET principal = :value WHERE id = :id")
        connection.execute(change, {"value": json.dumps(bound), "id": row.id})
    for table, dated in (("sessions", "created_at"), ("work_tasks", "created_at"), ("schedules", "body")):
        _bind_creators(connection, table, dated, tokens)


def _bind_creators(connection: sa.Connection, table: str, dated: str, tokens: dict[str, tuple[str, str]]) -> None:
    rows: Iterable[Any] = connection.execute(
        sa.text(f"SELECT id, creator, {dated} AS dated FROM {table} WHERE creator IS NOT NULL")
    ).all()
    for row in rows:
        since = row.dated if isinstance(row.dated, str) else json.loads(bytes(row.dated))["created_at"]
        bound = _bound(json.loads(bytes(row.creator)), tokens, since)
        change = sa.text(f"UPDATE {table} SET creator = :value WHERE id = :id")
        connection.execute(change, {"value": json.dumps(bound).encode(), "id": row.id})


def _bound(principal: dict[str, Any], tokens: dict[str, tuple[str, str]], since: str | None) -> dict[str, Any]:
    """Return a stored principal, and those it was created by, with the ids of their tokens."""
    above: dict[str, Any] | None = principal.get("creator")
    if above is not None:
        principal = {**principal, "creator": _bound(above, tokens, since)}
    if principal.get("kind") != "token" or "tokenId" in principal:
        return principal
    token, created = tokens.get(principal.get("name", ""), (_REVOKED, ""))
    is_later = bool(created) and since is not None and _moment(created) > _moment(since)
    return {**principal, "tokenId": _REVOKED if is_later else token}


def _moment(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
