"""What the owner agreed to of plugins, as rows; `plugins` reads and writes them."""

from datetime import UTC, datetime

import orjson
from sqlalchemy import delete, insert, select, update

from toolcrib.model.plugins import PluginGrant
from toolcrib.store.audit import moment
from toolcrib.store.engine import Store
from toolcrib.store.schema import plugin_grants


async def load_grants(store: Store) -> list[PluginGrant]:
    """All of them, by name."""
    query = select(plugin_grants).order_by(plugin_grants.c.name)
    return [
        PluginGrant(
            name=row.name,
            version=row.version,
            capabilities=tuple(orjson.loads(row.capabilities)),
            digest=row.digest,
            granted_at=datetime.fromisoformat(row.granted_at).astimezone(UTC),
            granted_by=row.granted_by,
            enabled=bool(row.enabled),
        )
        for row in await store.read(lambda connection: connection.execute(query).all())
    ]


async def save_grant(store: Store, grant: PluginGrant) -> None:
    """Keep a grant in place of an earlier one."""
    await store.write(
        delete(plugin_grants).where(plugin_grants.c.name == grant.name),
        insert(plugin_grants).values(
            name=grant.name,
            version=grant.version,
            capabilities=orjson.dumps(grant.capabilities).decode(),
            digest=grant.digest,
            enabled=grant.enabled,
            granted_at=moment(grant.granted_at),
            granted_by=grant.granted_by,
        ),
    )


async def switch_grant(store: Store, name: str, enabled: bool) -> bool:
    """Turn a plugin on or off; false if nothing was granted to it."""
    query = update(plugin_grants).where(plugin_grants.c.name == name).values(enabled=enabled)
    (changed,) = await store.write(query)
    return changed == 1


async def delete_grant(store: Store, name: str) -> bool:
    """Take a grant back; false if there was none."""
    (gone,) = await store.write(delete(plugin_grants).where(plugin_grants.c.name == name))
    return gone == 1
