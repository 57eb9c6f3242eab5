"""Bundles created by users, as stored in the database; built-in ones are not included."""

from sqlalchemy import delete, insert, select, update

from toolcrib.model.errors import Conflict
from toolcrib.model.json import JsonObject, dumps, loads
from toolcrib.model.policy import Bundle
from toolcrib.store.batch import ConstraintError
from toolcrib.store.engine import Store
from toolcrib.store.schema import bundles


async def load_bundles(store: Store) -> list[Bundle]:
    """Return all bundles in order of their ids."""
    query = select(bundles).order_by(bundles.c.id)
    rows = await store.read(lambda connection: connection.execute(query).all())
    return [Bundle(row.id, row.name, tuple(loads(row.tools)), row.description, row.prompt) for row in rows]


async def create_bundle(store: Store, bundle: Bundle) -> None:
    """Add a bundle. Raises `Conflict` (`bundle.exists`) if its id is taken."""
    try:
        await store.write(insert(bundles).values(id=bundle.id, **_columns(bundle)))
    except ConstraintError as error:
        raise Conflict("bundle.exists", f"There is a bundle {bundle.id} already.") from error


async def replace_bundle(store: Store, bundle: Bundle) -> bool:
    """Replace a bundle; return False if its id does not exist."""
    (changed,) = await store.write(update(bundles).where(bundles.c.id == bundle.id).values(**_columns(bundle)))
    return changed == 1


async def delete_bundle(store: Store, id: str) -> bool:
    """Delete a bundle; return False if its id does not exist."""
    (gone,) = await store.write(delete(bundles).where(bundles.c.id == id))
    return gone == 1


def _columns(bundle: Bundle) -> JsonObject:
    return {
        "name": bundle.name,
        "description": bundle.description,
        "prompt": bundle.prompt,
        "tools": dumps(list(bundle.tools)),
    }
