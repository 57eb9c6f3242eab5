"""Pinned definitions of upstream tools, as the database keeps them.

Every change says which pin it was made from, so that two cribs on one database cannot overwrite each other's.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
from sqlalchemy import Row, Update, insert, select, update

from toolcrib.model.json import canonical
from toolcrib.model.pins import Held, Pin
from toolcrib.store.audit import moment
from toolcrib.store.batch import Many
from toolcrib.store.engine import Store
from toolcrib.store.schema import pins


async def load_pins(store: Store, server: str | None = None) -> list[Pin]:
    """All pins, or those of one server."""
    query = select(pins) if server is None else select(pins).where(pins.c.server == server)
    rows: Sequence[Row[*tuple[Any, ...]]] = await store.read(lambda connection: connection.execute(query).all())
    return [_pin(row) for row in rows]


async def save_pins(store: Store, new: Iterable[Pin], changed: Iterable[tuple[Pin, Pin]]) -> bool:
    """Add pins and replace others (old, new), in one transaction; false if one that was to be replaced had changed.

    Raises `ConstraintError` if a new one is there already; then nothing was kept.
    """
    rows = [{"server": pin.server, "tool": pin.tool, **_values(pin)} for pin in new]
    replaced = [_replacement(old, pin) for old, pin in changed]
    if rows:
        # One statement for all: a server may have thousands of tools.
        return all(await store.write(Many(insert(pins), rows), *replaced))
    return all(await store.write(*replaced)) if replaced else True


def _replacement(old: Pin, pin: Pin) -> Update:
    same = (
        pins.c.server == old.server,
        pins.c.tool == old.tool,
        pins.c.hash == old.hash,
        pins.c.held_hash.is_not_distinct_from(old.held.hash if old.held else None),
    )
    return update(pins).where(*same).values(**_values(pin))


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
        held = Held(row.held_hash, orjson.loads(row.held_definition), _time(row.held_at), row.rejected_by)
    definition = orjson.loads(row.definition)
    return Pin(row.server, row.tool, row.hash, definition, _time(row.pinned_at), row.accepted_by, held)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
