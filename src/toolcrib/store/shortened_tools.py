"""The tools that are listed in a shorter form, as stored in the database."""

from collections.abc import Iterable, Mapping

from sqlalchemy import delete, select

from toolcrib.model.tools import ToolRef
from toolcrib.store.engine import Store
from toolcrib.store.new_rows import insert_new
from toolcrib.store.schema import shortened_tools


async def load_shortened(store: Store) -> dict[str, ToolRef]:
    """Return the tools by the hash of the definition that was shortened."""
    rows = await store.read(lambda connection: connection.execute(select(shortened_tools)).all())
    return {row.hash: ToolRef(row.server, row.tool) for row in rows}


async def save_shortened(store: Store, tools: Mapping[str, ToolRef]) -> None:
    """Add tools. Idempotent."""
    rows = [{"hash": hash, "server": ref.server, "tool": ref.tool} for hash, ref in tools.items()]
    await store.write(*(insert_new(shortened_tools).values(**row) for row in rows))


async def delete_shortened(store: Store, tools: Iterable[ToolRef]) -> None:
    """Remove tools, whichever definition was shortened. Idempotent."""
    table = shortened_tools.c
    await store.write(
        *(delete(shortened_tools).where(table.server == ref.server, table.tool == ref.tool) for ref in tools)
    )
