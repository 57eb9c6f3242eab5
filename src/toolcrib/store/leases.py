"""Leases: work that one node does at a time, by the clock of the database."""

from sqlalchemy import delete, select, update

from toolcrib.store.clock import database_seconds
from toolcrib.store.engine import Store
from toolcrib.store.new_rows import insert_new
from toolcrib.store.node_schema import leases


async def take_lease(store: Store, name: str, holder: str, seconds: float) -> bool:
    """Take or renew a lease for this many seconds; return False while another holder has it."""
    held_by = await lease_holder(store, name)
    if held_by not in (None, holder):  # an insert that fails would hold up other writes
        return False
    until = database_seconds() + seconds
    is_free = (leases.c.holder == holder) | (leases.c.until < database_seconds())
    (taken,) = await store.write(
        update(leases).where(leases.c.name == name, is_free).values(holder=holder, until=until)
    )
    if taken:
        return True
    (taken,) = await store.write(insert_new(leases).values(name=name, holder=holder, until=until))
    return taken == 1


async def end_lease(store: Store, name: str, holder: str) -> None:
    """Release a lease. Idempotent."""
    await store.write(delete(leases).where(leases.c.name == name, leases.c.holder == holder))


async def lease_holder(store: Store, name: str) -> str | None:
    """Return the current holder of a lease, or None."""
    query = select(leases.c.holder).where(leases.c.name == name, leases.c.until >= database_seconds())
    return await store.read(lambda connection: connection.execute(query).scalar())
