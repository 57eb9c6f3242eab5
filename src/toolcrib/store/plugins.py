"""The owner's grants to plugins, as rows."""

from datetime import UTC, datetime

from sqlalchemy import delete, insert, select, update

from toolcrib.model.json import dumps, loads
from toolcrib.model.plugins import PluginGrant
from toolcrib.store.audit import moment
from toolcrib.store.engine import Store
from toolcrib.store.schema import plugin_grants


async def load_grants(store: Store) -> list[PluginGrant]:
    """Return all grants, by name."""
    query = select(plugin_grants).order_by(plugin_grants.c.name)
    return [
        PluginGrant(
            name=row.name,
            version=row.version,
            capabilities=tuple(loads(row.capabilities)),
            digest=row.digest,
            granted_at=datetime.fromisoformat(row.granted_at).astimezone(UTC),
            granted_by=row.granted_by,
            enabled=bool(row.enabled),
        )
        for row in await store.read(lambda connection: connection.execute(query).all())
    ]


async def save_grant(store: Store, grant: PluginGrant) -> None:
    """Store a grant, replacing an earlier one."""
    await store.write(
        delete(plugin_grants).where(plugin_grants.c.name == grant.name),
        insert(plugin_grants).values(
            name=grant.name,
            version=grant.version,
            capabilities=dumps(grant.capabilities).decode(),
            digest=grant.digest,
            enabled=grant.enabled,
            granted_at=moment(grant.granted_at),
            granted_by=grant.granted_by,
        ),
    )


async def switch_grant(store: Store, name: str, enabled: bool) -> bool:
    """Enable or disable a plugin; return False if it has no grant."""
    query = update(plugin_grants).where(plugin_grants.c.name == name).values(enabled=enabled)
    (changed,) = await store.write(query)
    return changed == 1


async def delete_grant(store: Store, name: str) -> bool:
    """Delete a grant; return False if there was none."""
    (gone,) = await store.write(delete(plugin_grants).where(plugin_grants.c.name == name))
    return gone == 1
