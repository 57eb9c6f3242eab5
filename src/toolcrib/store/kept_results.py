"""Large results that their callers read on in, as stored for all nodes. This module never sees them in plain."""

from sqlalchemy import delete, func, insert, select

from toolcrib.store.clock import database_seconds
from toolcrib.store.engine import Store
from toolcrib.store.node_schema import kept_results


async def save_result(store: Store, handle: str, owner: str, body: bytes, seconds: float) -> None:
    """Store a result that expires after this many seconds."""
    expires = database_seconds() + seconds
    await store.write(
        insert(kept_results).values(handle=handle, owner=owner, expires=expires, size=len(body), body=body)
    )


async def load_result(store: Store, handle: str) -> tuple[str, bytes, float] | None:
    """Return the owner and the body of a result, and the seconds until it expires; None if there is none."""
    left = (kept_results.c.expires - database_seconds()).label("left")
    query = select(kept_results, left).where(kept_results.c.handle == handle, left > 0)
    row = await store.read(lambda connection: connection.execute(query).one_or_none())
    return None if row is None else (row.owner, bytes(row.body), row.left)


async def load_result_owners(store: Store) -> set[str]:
    """Return the owners of all results that have not expired."""
    query = select(kept_results.c.owner).where(kept_results.c.expires > database_seconds()).distinct()
    return set(await store.read(lambda connection: connection.execute(query).scalars().all()))


async def prune_results(store: Store, most_bytes: int) -> None:
    """Delete expired results, and the oldest ones if all take more than this many bytes."""
    total = func.sum(kept_results.c.size).over(order_by=(kept_results.c.expires.desc(), kept_results.c.handle))
    sizes = select(kept_results.c.handle, total.label("total")).subquery()
    is_beyond = kept_results.c.handle.in_(select(sizes.c.handle).where(sizes.c.total > most_bytes))
    await store.write(delete(kept_results).where((kept_results.c.expires <= database_seconds()) | is_beyond))
