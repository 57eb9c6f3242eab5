"""The epoch of the permissions: a number that grows with every change of them, in the transaction of the change."""

from typing import Literal

from sqlalchemy import select

from toolcrib.store.engine import Store
from toolcrib.store.node_schema import epochs


async def load_policy_epoch(store: Store, name: Literal["policy", "pins"] = "policy") -> int:
    """Return the current epoch of all permissions, or of the definitions of tools alone."""
    query = select(epochs.c.value).where(epochs.c.name == name)
    return await store.read(lambda connection: connection.execute(query).scalar_one())
