"""The epoch of the permissions: a number that grows with every change of them, in the transaction of the change."""

from sqlalchemy import select

from toolcrib.store.engine import Store
from toolcrib.store.node_schema import epochs

_QUERY = select(epochs.c.value).where(epochs.c.name == "policy")


async def load_policy_epoch(store: Store) -> int:
    """Return the current epoch."""
    return await store.read(lambda connection: connection.execute(_QUERY).scalar_one())
