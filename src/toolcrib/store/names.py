"""Stores the exposed names of tools permanently; `gate.catalog.naming` assigns them."""

from collections.abc import Iterable
from typing import TypeAlias

from sqlalchemy import select

from toolcrib.base.cooperative import Pacer
from toolcrib.store.batch import Many
from toolcrib.store.engine import Store
from toolcrib.store.new_rows import insert_new
from toolcrib.store.schema import names

NameRow: TypeAlias = tuple[str, str, str, str]
"""One taken name: form, name, server, tool."""
_TOGETHER = 150
_INSERT = insert_new(names)


async def load_names(store: Store) -> list[NameRow]:
    """Return all names ever assigned."""
    rows = await store.read(lambda connection: connection.execute(select(names)).all())
    return [(row.form, row.name, row.server, row.tool) for row in rows]


async def save_names(store: Store, rows: Iterable[NameRow]) -> bool:
    """Add new names, many in chunks that yield to other tasks in between.

    Returns False if a name or tool already had a row: another crib on the same database was first.
    """
    given = [{"form": form, "name": name, "server": server, "tool": tool} for form, name, server, tool in rows]
    pace = Pacer()
    added = 0
    for start in range(0, len(given), _TOGETHER):
        added += sum(await store.write(Many(_INSERT, given[start : start + _TOGETHER])))
        await pace.pause()
    return added == len(given)
