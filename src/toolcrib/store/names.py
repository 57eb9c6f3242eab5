"""Stores the exposed names of tools permanently; `gate.catalog.naming` assigns them."""

from collections.abc import Iterable
from typing import TypeAlias

from sqlalchemy import insert, select

from toolcrib.base.cooperative import Pacer
from toolcrib.store.batch import Many
from toolcrib.store.engine import Store
from toolcrib.store.schema import names

NameRow: TypeAlias = tuple[str, str, str, str]
"""One taken name: form, name, server, tool."""
_TOGETHER = 150
_INSERT = insert(names)


async def load_names(store: Store) -> list[NameRow]:
    """Return all names ever assigned."""
    rows = await store.read(lambda connection: connection.execute(select(names)).all())
    return [(row.form, row.name, row.server, row.tool) for row in rows]


async def save_names(store: Store, rows: Iterable[NameRow]) -> None:
    """Add new names: a few atomically, many in chunks that yield to other tasks in between.

    Raises `ConstraintError` if a name or tool already has a row: another crib on the same database was first.
    """
    given = [{"form": form, "name": name, "server": server, "tool": tool} for form, name, server, tool in rows]
    pace = Pacer()
    for start in range(0, len(given), _TOGETHER):
        await store.write(Many(_INSERT, given[start : start + _TOGETHER]))
        await pace.pause()
