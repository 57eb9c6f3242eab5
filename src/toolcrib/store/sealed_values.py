"""Encrypted values that all nodes of a cluster share. This module never sees them in plain."""

from sqlalchemy import delete, insert, select

from toolcrib.store.engine import Store
from toolcrib.store.new_rows import insert_new
from toolcrib.store.node_schema import sealed_values


async def load_sealed(store: Store, name: str) -> bytes | None:
    """Return the value of this name, or None."""
    query = select(sealed_values.c.body).where(sealed_values.c.name == name)
    body = await store.read(lambda connection: connection.execute(query).scalar())
    return None if body is None else bytes(body)


async def load_all_sealed(store: Store, prefix: str) -> dict[str, bytes]:
    """Return all values whose names start with this prefix."""
    query = select(sealed_values).where(sealed_values.c.name.startswith(prefix, autoescape=True))
    rows = await store.read(lambda connection: connection.execute(query).all())
    return {row.name: bytes(row.body) for row in rows}


async def save_sealed(store: Store, name: str, body: bytes | None) -> None:
    """Store a value, replacing the previous one; None removes it."""
    gone = delete(sealed_values).where(sealed_values.c.name == name)
    if body is None:
        await store.write(gone)
    else:
        await store.write(gone, insert(sealed_values).values(name=name, body=body))


async def add_sealed(store: Store, name: str, body: bytes) -> bool:
    """Store a value unless there is one of this name; return whether it was stored."""
    (added,) = await store.write(insert_new(sealed_values).values(name=name, body=body))
    return added == 1
