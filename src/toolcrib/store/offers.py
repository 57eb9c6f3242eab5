"""What servers offered when they were last asked, so that it can be shown before they are connected again.

The key says which definition an offer belongs to; what an offer is, is for `connect.offer` to say.
"""

from datetime import UTC, datetime

from sqlalchemy import Connection, delete, insert, select

from toolcrib.store.engine import Store
from toolcrib.store.schema import offers

KEPT = 1_000
"""How many offers are kept: those that were saved last."""


async def load_offers(store: Store) -> dict[str, bytes]:
    """The offers by their keys."""

    def read(connection: Connection) -> dict[str, bytes]:
        rows = connection.execute(select(offers.c.key, offers.c.body).order_by(offers.c.at.desc()).limit(KEPT))
        return {row.key: bytes(row.body) for row in rows}

    return await store.read(read)


async def save_offer(store: Store, key: str, body: bytes, at: datetime | None = None) -> None:
    """Keep an offer in place of the one before; the oldest beyond the limit go."""
    moment = (at or datetime.now(UTC)).isoformat(timespec="milliseconds")
    newest = select(offers.c.key).order_by(offers.c.at.desc()).limit(KEPT)
    await store.write(
        delete(offers).where(offers.c.key == key),
        insert(offers).values(key=key, at=moment, body=body),
        delete(offers).where(offers.c.key.not_in(newest)),
    )
