"""What counts towards limits across nodes, as stored in the database."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import bindparam, delete, func, insert, select

from toolcrib.store.batch import Many
from toolcrib.store.clock import database_seconds
from toolcrib.store.engine import Store
from toolcrib.store.node_schema import usage


class Use(NamedTuple):
    """One use to count: its id, what it counts towards, the amount, and the seconds it counts for, if limited."""

    id: str
    key: str
    amount: float
    seconds: float | None


class Used(NamedTuple):
    """The sum of all uses of one key, and the age of the oldest in seconds."""

    amount: float
    age: float


async def add_uses(store: Store, uses: Sequence[Use]) -> None:
    """Count uses, and forget those of the same keys that no longer count."""
    outdated = [
        delete(usage).where(usage.c.key == use.key, usage.c.at <= database_seconds() - use.seconds)
        for use in uses
        if use.seconds is not None
    ]
    new = [insert(usage).values(id=use.id, key=use.key, at=database_seconds(), amount=use.amount) for use in uses]
    await store.write(*outdated, *new)


async def remove_uses(store: Store, ids: Sequence[str]) -> None:
    """Take uses back: they were refused."""
    await store.write(Many(delete(usage).where(usage.c.id == bindparam("gone")), [{"gone": id} for id in ids]))


async def load_used(store: Store, key: str, seconds: float | None) -> Used:
    """Return what counts towards a key now."""
    age = database_seconds() - func.min(usage.c.at)
    query = select(func.coalesce(func.sum(usage.c.amount), 0.0), func.coalesce(age, 0.0)).where(usage.c.key == key)
    if seconds is not None:
        query = query.where(usage.c.at > database_seconds() - seconds)
    amount, oldest = await store.read(lambda connection: connection.execute(query).one())
    return Used(amount, oldest)


async def forget_uses(store: Store, prefix: str) -> None:
    """Forget all uses whose keys start with this prefix."""
    await store.write(delete(usage).where(usage.c.key.startswith(prefix, autoescape=True)))
