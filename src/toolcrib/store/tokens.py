"""Named tokens, as stored in the database: the principal of each, and the digest of its secret."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from toolcrib.model.tokens import Token
from toolcrib.store.audit import moment
from toolcrib.store.engine import Store
from toolcrib.store.schema import tokens


async def load_tokens(store: Store) -> list[Token]:
    """Return all tokens, including revoked ones, oldest first."""
    query = select(tokens).order_by(tokens.c.created_at, tokens.c.name)
    rows: Sequence[Row[*tuple[Any, ...]]] = await store.read(lambda connection: connection.execute(query).all())
    return [_token(row) for row in rows]


async def save_token(store: Store, token: Token) -> None:
    """Add a token, replacing a revoked one of the same name.

    Raises `ConstraintError` if a token of this name is in use.
    """
    await store.write(
        delete(tokens).where(tokens.c.name == token.name, tokens.c.revoked_at.is_not(None)),
        insert(tokens).values(
            name=token.name,
            digest=token.digest.hex(),
            source=token.source,
            mode=token.mode,
            agent=token.agent,
            may_approve=token.may_approve,
            may_remember=token.may_remember,
            level=token.level,
            created_at=moment(token.created_at),
        ),
    )


async def revoke_token(store: Store, name: str, at: datetime) -> bool:
    """Revoke a token permanently; return False if none of this name is in use."""
    live = update(tokens).where(tokens.c.name == name, tokens.c.revoked_at.is_(None))
    (ended,) = await store.write(live.values(revoked_at=moment(at)))
    return ended == 1


def _token(row: Row[*tuple[Any, ...]]) -> Token:
    return Token(
        name=row.name,
        digest=bytes.fromhex(row.digest),
        source=row.source,
        mode=row.mode,
        created_at=_time(row.created_at),
        agent=row.agent,
        may_approve=bool(row.may_approve),
        revoked_at=None if row.revoked_at is None else _time(row.revoked_at),
        may_remember=bool(row.may_remember),
        level=row.level,
    )


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
