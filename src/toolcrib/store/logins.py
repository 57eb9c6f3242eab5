"""Sign-ins of browsers that count on every node, as stored in the database. It holds keyed digests only."""

from typing import Literal

from sqlalchemy import delete, insert, select

from toolcrib.store.clock import database_seconds
from toolcrib.store.engine import Store
from toolcrib.store.node_schema import logins

LoginKind = Literal["code", "session"]


async def add_login(store: Store, digest: str, kind: LoginKind, seconds: float, most: int) -> None:
    """Store a sign-in that expires after this many seconds. At most the newest `most` of its kind are kept."""
    newest = select(logins.c.digest).where(logins.c.kind == kind).order_by(logins.c.expires.desc()).limit(most)
    await store.write(
        insert(logins).values(digest=digest, kind=kind, expires=database_seconds() + seconds),
        delete(logins).where(
            (logins.c.expires <= database_seconds()) | ((logins.c.kind == kind) & logins.c.digest.not_in(newest))
        ),
    )


async def remove_login(store: Store, digest: str, kind: LoginKind) -> bool:
    """Remove a sign-in; return False if there is none that is still valid. Only one caller gets True."""
    is_valid = (logins.c.digest == digest) & (logins.c.kind == kind) & (logins.c.expires > database_seconds())
    (removed,) = await store.write(delete(logins).where(is_valid))
    return removed == 1


async def load_login_sessions(store: Store, digest: str | None = None) -> dict[str, float]:
    """Return the seconds until the end of each valid session, or of one."""
    left = (logins.c.expires - database_seconds()).label("left")
    query = select(logins.c.digest, left).where(logins.c.kind == "session", logins.c.expires > database_seconds())
    if digest is not None:
        query = query.where(logins.c.digest == digest)
    rows = await store.read(lambda connection: connection.execute(query).all())
    return {row.digest: row.left for row in rows}
