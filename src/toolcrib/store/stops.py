"""The kill switch of all nodes on one database, as stored in it."""

from sqlalchemy import delete, select

from toolcrib.base.stop_switch import StopState
from toolcrib.store.engine import Store
from toolcrib.store.new_rows import insert_new
from toolcrib.store.node_schema import stops

_ONLY = 1
"""The id of the only row."""


async def load_stop(store: Store) -> StopState | None:
    """Return why all nodes are stopped, or None while they are not."""
    row = await store.read(lambda connection: connection.execute(select(stops)).one_or_none())
    return None if row is None else StopState(row.at, row.by, row.reason, recorded=True, shared=True)


async def save_stop(store: Store, state: StopState) -> None:
    """Stop all nodes. Idempotent; the first state is kept."""
    await store.write(insert_new(stops).values(id=_ONLY, at=state.at, by=state.by, reason=state.reason))


async def remove_stop(store: Store) -> None:
    """Resume all nodes. Idempotent."""
    await store.write(delete(stops))
