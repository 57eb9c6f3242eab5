"""The nodes that share a database, as stored in it. `toolcrib.nodes.membership` defines their lives."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, and_, delete, func, insert, select, update

from toolcrib.model.nodes import Node, at_seconds
from toolcrib.store.clock import database_seconds
from toolcrib.store.engine import Store
from toolcrib.store.job_queue import WORKERS
from toolcrib.store.node_schema import epochs, nodes
from toolcrib.store.schema import sessions

NODE_EPOCH = "nodes"
"""The name of the counter that numbers the starts of nodes."""
_ACTIVE = ("starting", "running", "waiting")
"""The states of a session with work in progress."""
_FORGET_SECONDS = 86_400.0
"""Seconds after which a dead node is no longer listed."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a node reports of itself. `epoch` is that of its lease."""

    id: str
    epoch: int
    address: str | None
    load: int


async def join(store: Store, id: str, *, version: str, address: str | None, draining: bool) -> int:
    """Begin a lease of this node and end its previous one. Returns the new epoch."""
    epoch = select(epochs.c.value).where(epochs.c.name == NODE_EPOCH).scalar_subquery()
    is_forgotten = nodes.c.seen_at < database_seconds() - _FORGET_SECONDS
    await store.write(
        # The row lock of this statement orders nodes that start at once.
        update(epochs).where(epochs.c.name == NODE_EPOCH).values(value=epochs.c.value + 1),
        delete(nodes).where((nodes.c.id == id) | is_forgotten),
        insert(nodes).values(
            id=id,
            address=address,
            epoch=epoch,
            version=version,
            load=0,
            seen_at=database_seconds(),
            draining=draining,
        ),
    )
    query = select(nodes.c.epoch).where(nodes.c.id == id)
    return await store.read(lambda connection: connection.execute(query).scalar_one())


async def beat(store: Store, heartbeat: Heartbeat, lease: float, worker: int | None = None) -> bool:
    """Renew a lease of this many seconds; return False if it had ended, or if the node has a newer one.

    The heartbeat of a worker of the job queue is renewed by the same statement.
    """
    holds = and_(
        nodes.c.id == heartbeat.id,
        nodes.c.epoch == heartbeat.epoch,
        nodes.c.seen_at > database_seconds() - lease,
    )
    statement = update(nodes).where(holds)
    statement = statement.values(seen_at=database_seconds(), address=heartbeat.address, load=heartbeat.load)
    if worker is not None:
        is_held = select(nodes.c.id).where(holds).exists()
        renewal = update(WORKERS).where(WORKERS.c.id == worker, is_held).values(last_heartbeat=func.now())
        statement = statement.add_cte(renewal.cte("worker"))
    (renewed,) = await store.write(statement)
    return renewed == 1


async def leave(store: Store, id: str, epoch: int) -> None:
    """End a lease: the node is no longer listed."""
    await store.write(delete(nodes).where(nodes.c.id == id, nodes.c.epoch == epoch))


async def mark_draining(store: Store, id: str) -> bool:
    """Mark a node as draining; return False if there is none of this id."""
    (marked,) = await store.write(update(nodes).where(nodes.c.id == id).values(draining=True))
    return marked == 1


async def load_nodes(store: Store, lease: float) -> list[Node]:
    """Return all nodes in order of their starts, including dead ones. A lease lasts this many seconds."""
    age = func.coalesce(database_seconds() - nodes.c.seen_at, 0.0).label("age")
    query = select(nodes, age).order_by(nodes.c.epoch)
    rows = await store.read(lambda connection: connection.execute(query).all())
    return [_node(row, lease) for row in rows]


async def count_sessions(store: Store) -> dict[str, int]:
    """Return the number of sessions that each node runs now."""
    is_active = sessions.c.state.in_(_ACTIVE)
    query = select(sessions.c.crib, func.count()).where(is_active).group_by(sessions.c.crib)
    return dict(await store.read(lambda connection: connection.execute(query).all()))


def _node(row: Row[*tuple[Any, ...]], lease: float) -> Node:
    return Node(
        id=row.id,
        address=row.address,
        epoch=row.epoch,
        version=row.version,
        load=row.load,
        seen_at=at_seconds(row.seen_at),
        age=row.age,
        draining=bool(row.draining),
        is_alive=row.age <= lease,
        lease=None if lease == float("inf") else lease - row.age,
    )
