"""Tasks of MCP clients (long calls), as rows. They outlive the process, so that clients can fetch results later."""

from itertools import accumulate
from typing import NamedTuple

from sqlalchemy import delete, func, insert, select, update

from toolcrib.store.engine import Store
from toolcrib.store.schema import mcp_tasks

OPEN_STATES = ("working", "input_required")
_AT_ONCE = 500


class McpTaskRow(NamedTuple):
    """One task. `owner` is a digest of its principal, `crib` the one that runs it, `body` the JSON of its state."""

    id: str
    owner: str
    crib: str
    status: str
    expires_at: str
    body: bytes


async def add_mcp_task(store: Store, row: McpTaskRow) -> None:
    """Add a task, durably."""
    await store.write(insert(mcp_tasks).values(**row._asdict()))


async def change_mcp_task(store: Store, row: McpTaskRow) -> None:
    """Store the new state of a task."""
    changed = {"status": row.status, "body": row.body}
    await store.write(update(mcp_tasks).where(mcp_tasks.c.id == row.id).values(**changed))


async def load_mcp_task(store: Store, id: str) -> McpTaskRow | None:
    """Return one task."""
    columns = [mcp_tasks.c[name] for name in McpTaskRow._fields]
    query = select(*columns).where(mcp_tasks.c.id == id)
    row = await store.read(lambda connection: connection.execute(query).first())
    return McpTaskRow(*row) if row is not None else None


async def open_mcp_tasks(store: Store, crib: str) -> list[McpTaskRow]:
    """Return the unfinished tasks of one crib."""
    columns = [mcp_tasks.c[name] for name in McpTaskRow._fields]
    query = select(*columns).where(mcp_tasks.c.crib == crib, mcp_tasks.c.status.in_(OPEN_STATES))
    return [McpTaskRow(*row) for row in await store.read(lambda connection: connection.execute(query).all())]


async def remove_expired_mcp_tasks(store: Store, now: str) -> None:
    """Delete the tasks that expired before this moment."""
    await store.write(delete(mcp_tasks).where(mcp_tasks.c.expires_at < now))


async def trim_mcp_tasks(store: Store, owner: str, most: int, most_bytes: int) -> None:
    """Delete the oldest ended tasks of a principal beyond these limits."""
    ended = mcp_tasks.c.owner == owner, mcp_tasks.c.status.not_in(OPEN_STATES)
    query = select(mcp_tasks.c.id, func.length(mcp_tasks.c.body)).where(*ended).order_by(mcp_tasks.c.expires_at.desc())
    rows = await store.read(lambda connection: connection.execute(query).all())
    sizes = accumulate(size for _, size in rows)
    beyond = [
        id
        for number, ((id, _), size) in enumerate(zip(rows, sizes, strict=True))
        if number >= most or size > most_bytes
    ]
    for start in range(0, len(beyond), _AT_ONCE):
        await store.write(delete(mcp_tasks).where(mcp_tasks.c.id.in_(beyond[start : start + _AT_ONCE])))
