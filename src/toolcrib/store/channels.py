"""Channels for notices to the owner, as rows: one per kind of channel."""

from datetime import UTC, datetime

from sqlalchemy import delete, insert, select

from toolcrib.model.json import dumps, loads
from toolcrib.model.notices import Channel
from toolcrib.store.audit import moment
from toolcrib.store.engine import Store
from toolcrib.store.schema import channels


async def load_channels(store: Store) -> list[Channel]:
    """Return all configured channels."""
    query = select(channels).order_by(channels.c.kind)
    rows = await store.read(lambda connection: connection.execute(query).all())
    return [
        Channel(row.kind, loads(row.config), row.set_by, datetime.fromisoformat(row.set_at).astimezone(UTC))
        for row in rows
    ]


async def save_channel(store: Store, channel: Channel) -> None:
    """Store a channel, replacing the previous one of its kind."""
    values = {
        "kind": channel.kind,
        "config": dumps(channel.config),
        "set_at": moment(channel.set_at),
        "set_by": channel.set_by,
    }
    await store.write(delete(channels).where(channels.c.kind == channel.kind), insert(channels).values(**values))


async def delete_channel(store: Store, kind: str) -> bool:
    """Delete a channel; return False if it was not configured."""
    (gone,) = await store.write(delete(channels).where(channels.c.kind == kind))
    return gone == 1
