"""Named tokens, as the database keeps them: who each stands for, and the digest of its secret."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from toolcrib.model.tokens import Token
from toolcrib.store.audit import moment
from toolcrib.store.engine import Store
from toolcrib.store.schema import tokens


async def load_tokens(store: Store) -> list[Token]:
    """All tokens, revoked ones too, the oldest first."""
    query = select(tokens).order_by(tokens.c.created_at, tokens.c.name)
    rows: Sequence[Row[*tuple[Any, ...]]] = await store.read(lambda connection: connection.execute(query).all())
    return [_token(row) for row in rows]


async def save_token(store: Store, token: Token) -> None:
    """Add a token; one of the same name that was revoked makes room.

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
            created_at=moment(token.created_at),
        ),
    )


async def revoke_token(store: Store, name: str, at: datetime) -> bool:
    """End a token for good; false if none of this name is in use."""
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
    )


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
