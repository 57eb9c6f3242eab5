"""The names tools are shown under, kept for ever: `catalog.naming` makes them, here they are stored."""

from collections.abc import Iterable
from typing import TypeAlias

from sqlalchemy import insert, select

from toolcrib.pace import Pace
from toolcrib.store.batch import Many
from toolcrib.store.engine import Store
from toolcrib.store.schema import names

NameRow: TypeAlias = tuple[str, str, str, str]
"""One taken name: form, name, server, tool."""
_TOGETHER = 150
_INSERT = insert(names)


async def load_names(store: Store) -> list[NameRow]:
    """All names ever given."""
    rows = await store.read(lambda connection: connection.execute(select(names)).all())
    return [(row.form, row.name, row.server, row.tool) for row in rows]


async def save_names(store: Store, rows: Iterable[NameRow]) -> None:
    """Add new names: a few all or none, very many of them in groups, between which others have their turn.

    Raises `ConstraintError` if a name or a tool has its row already: another crib on the same database was first.
    """
    given = [{"form": form, "name": name, "server": server, "tool": tool} for form, name, server, tool in rows]
    pace = Pace()
    for start in range(0, len(given), _TOGETHER):
        await store.write(Many(_INSERT, given[start : start + _TOGETHER]))
        await pace.pause()
