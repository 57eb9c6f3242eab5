"""Pins of upstream tools, as stored in the database.

Every change names the pin it was made from, so that two cribs on one database cannot overwrite each other's changes.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, bindparam, insert, select, update

from toolcrib.model.json import canonical, loads
from toolcrib.model.pins import HeldDefinition, Pin
from toolcrib.store.audit import moment
from toolcrib.store.batch import Many
from toolcrib.store.engine import Store
from toolcrib.store.schema import pins

_INSERT = insert(pins)
_REPLACE = update(pins).where(
    pins.c.server == bindparam("old_server"),
    pins.c.tool == bindparam("old_tool"),
    pins.c.hash == bindparam("old_hash"),
    pins.c.held_hash.is_not_distinct_from(bindparam("old_held_hash")),
)


async def load_pins(store: Store, server: str | None = None) -> list[Pin]:
    """Return all pins, or those of one server."""
    query = select(pins) if server is None else select(pins).where(pins.c.server == server)
    rows: Sequence[Row[*tuple[Any, ...]]] = await store.read(lambda connection: connection.execute(query).all())
    return [_pin(row) for row in rows]


async def save_pins(store: Store, new: Iterable[Pin], changed: Iterable[tuple[Pin, Pin]]) -> bool:
    """Add pins and replace others (old, new) in one transaction; return False if an old one had changed.

    Raises `ConstraintError` if a new one already exists; then nothing is stored.
    """
    added = [{"server": pin.server, "tool": pin.tool, **_values(pin)} for pin in new]
    replaced = [{**_old(old), **_values(pin)} for old, pin in changed]
    given = [Many(statement, rows) for statement, rows in ((_INSERT, added), (_REPLACE, replaced)) if rows]
    if not given:
        return True
    counts = await store.write(*given)
    return sum(counts) == len(added) + len(replaced)


def _old(pin: Pin) -> dict[str, str | None]:
    """Return the values a pin's row must have in order to be replaced."""
    held_hash = pin.held.hash if pin.held else None
    return {"old_server": pin.server, "old_tool": pin.tool, "old_hash": pin.hash, "old_held_hash": held_hash}


def _values(pin: Pin) -> dict[str, Any]:
    held = pin.held
    return {
        "hash": pin.hash,
        "definition": canonical(pin.definition),
        "pinned_at": moment(pin.pinned_at),
        "accepted_by": pin.accepted_by,
        "held_hash": held.hash if held else None,
        "held_definition": canonical(held.definition) if held else None,
        "held_at": moment(held.since) if held else None,
        "rejected_by": held.rejected_by if held else None,
    }


def _pin(row: Row[*tuple[Any, ...]]) -> Pin:
    held = None
    if row.held_hash is not None:
        held = HeldDefinition(row.held_hash, loads(row.held_definition), _time(row.held_at), row.rejected_by)
    definition = loads(row.definition)
    return Pin(row.server, row.tool, row.hash, definition, _time(row.pinned_at), row.accepted_by, held)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
