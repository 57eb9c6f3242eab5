"""The lanes of the audit log: one chain per node, in one table.

The number of a record contains its lane: `lane * LANE_SIZE + position`. Lane 0 is the only one of a database that one
crib uses, and the one that cribs shared before there were lanes. Lane 1 holds the checkpoints.
"""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import BigInteger, ColumnElement, Connection, cast, func, literal, literal_column, select, union_all

from toolcrib.store.engine import Store
from toolcrib.store.new_rows import insert_new
from toolcrib.store.node_schema import audit_lanes
from toolcrib.store.schema import audit

LANE_SIZE: Final = 10**11
"""The number of records that a lane has room for. Numbers stay below 2**53 for the first 90,000 lanes."""
CHECKPOINT_LANE: Final = 1
CHECKPOINT_LEASE: Final = "audit checkpoints"
"""The name of the lease of the node that writes checkpoints."""
_FIRST_NODE: Final = 2


def lane_of(number: int) -> int:
    """Return the lane of a record."""
    return number // LANE_SIZE


def lane_start(lane: int) -> int:
    """Return the number before the first record of a lane."""
    return lane * LANE_SIZE


def lane_end(lane: int) -> int:
    """Return the first number after a lane."""
    return (lane + 1) * LANE_SIZE


async def own_lane(store: Store, crib: str) -> int:
    """Return the lane of a crib, reserving one at its first start."""
    mine = select(audit_lanes.c.lane).where(audit_lanes.c.crib == crib)
    while True:
        lane = await store.read(lambda connection: connection.execute(mine).scalar())
        if lane is not None:
            return int(lane)
        lanes = await load_lanes(store)
        await store.write(insert_new(audit_lanes).values(lane=max([_FIRST_NODE - 1, *lanes]) + 1, crib=crib))


async def load_lanes(store: Store) -> list[int]:
    """Return the lanes of all nodes there ever were, without lanes 0 and 1."""
    query = select(audit_lanes.c.lane).order_by(audit_lanes.c.lane)
    return [int(lane) for lane in await store.read(lambda connection: connection.execute(query).scalars().all())]


async def lane_owners(store: Store) -> dict[int, str]:
    """Return the crib of each lane."""
    query = select(audit_lanes.c.lane, audit_lanes.c.crib)
    return {int(lane): crib for lane, crib in await store.read(lambda connection: connection.execute(query).all())}


def lane_heads(connection: Connection, lanes: Sequence[int]) -> list[tuple[int, str]]:
    """Return number and hash of the newest record of each lane that has one."""
    heads: list[tuple[int, str]] = []
    for lane in lanes:
        query = select(audit.c.id, audit.c.hash).where(audit.c.id > lane_start(lane), audit.c.id < lane_end(lane))
        rows: Sequence[Any] = connection.execute(query.order_by(audit.c.id.desc()).limit(1)).all()
        heads += [(row.id, row.hash) for row in rows]
    return heads


def all_heads(connection: Connection) -> list[tuple[int, str]]:
    """Return number and hash of the newest record of lane 0 and of each node's lane."""
    lanes = union_all(select(cast(literal(0), BigInteger).label("lane")), select(audit_lanes.c.lane)).subquery()
    start = lanes.c.lane * LANE_SIZE
    newest = audit.alias()
    in_lane = select(func.max(newest.c.id)).where(newest.c.id > start, newest.c.id < start + LANE_SIZE)
    found = connection.execute(select(in_lane.correlate(lanes).scalar_subquery()).select_from(lanes)).scalars()
    numbers = [each for each in found if each is not None]
    if not numbers:
        return []
    # Not in one query: the planner could read the whole log to join the two.
    query = select(audit.c.id, audit.c.hash).where(audit.c.id.in_(numbers))
    return [(row.id, row.hash) for row in connection.execute(query.order_by(audit.c.id)).all()]


def lane_begin(connection: Connection, lane: int) -> tuple[int, Any] | None:
    """Return number and body of the oldest record of a lane, or None."""
    number: ColumnElement[Any] = literal_column("id")
    body: ColumnElement[Any] = literal_column("body")
    query = select(number, body).select_from(audit).where(audit.c.id > lane_start(lane), audit.c.id < lane_end(lane))
    row: Any = connection.execute(query.order_by(audit.c.id).limit(1)).first()
    return None if row is None else (row.id, row.body)
