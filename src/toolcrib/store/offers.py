"""Stores the last known offers of servers, to show them before the servers are connected again.

The key identifies the definition an offer belongs to. `upstream.offer` defines the content of an offer.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

from sqlalchemy import Connection, delete, insert, select

from toolcrib.store.batch import Many
from toolcrib.store.engine import Store
from toolcrib.store.schema import offers

KEPT = 1_000
"""How many offers are stored: the most recently saved ones."""


async def load_offers(store: Store) -> dict[str, bytes]:
    """Return the offers by their keys."""

    def read(connection: Connection) -> dict[str, bytes]:
        rows = connection.execute(select(offers.c.key, offers.c.body).order_by(offers.c.at.desc()).limit(KEPT))
        return {row.key: bytes(row.body) for row in rows}

    return await store.read(read)


async def save_offers(store: Store, bodies: Mapping[str, bytes], at: datetime | None = None) -> None:
    """Store offers, replacing previous ones; delete the oldest beyond the limit."""
    moment = (at or datetime.now(UTC)).isoformat(timespec="milliseconds")
    newest = select(offers.c.key).order_by(offers.c.at.desc()).limit(KEPT)
    rows = [{"key": key, "at": moment, "body": body} for key, body in bodies.items()]
    if rows:
        await store.write(
            delete(offers).where(offers.c.key.in_(bodies.keys())),
            Many(insert(offers), rows),
            delete(offers).where(offers.c.key.not_in(newest)),
        )
