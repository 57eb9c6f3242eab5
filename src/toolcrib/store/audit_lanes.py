"""The lanes of the audit log: one chain per node, in one table.

The number of a record contains its lane: `lane * LANE_SIZE + position`. Lane 0 is the only one of a database that one
crib uses, and the one that cribs shared before there were lanes. Lane 1 holds the checkpoints.
"""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, literal_column, select

from toolcrib.store.engine import Store
from toolcrib.store.new_rows import insert_new
from toolcrib.store.node_schema import audit_lanes
from toolcrib.store.schema import audit

LANE_SIZE: Final = 10**11
"""The number of records that a lane has room for. Numbers stay below 2**53 for the first 90,000 lanes."""
CHECKPOINT_LANE: Final = 1
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


def lane_begin(connection: Connection, lane: int) -> tuple[int, Any] | None:
    """Return number and body of the oldest record of a lane, or None."""
    number: ColumnElement[Any] = literal_column("id")
    body: ColumnElement[Any] = literal_column("body")
    query = select(number, body).select_from(audit).where(audit.c.id > lane_start(lane), audit.c.id < lane_end(lane))
    row: Any = connection.execute(query.order_by(audit.c.id).limit(1)).first()
    return None if row is None else (row.id, row.body)
