"""Bundles created by users (not the built-in ones), and the default agent and bundles of projects.

Trust in a project is stored elsewhere.
"""

from sqlalchemy import delete, insert, select, update

from toolcrib.model.errors import Conflict
from toolcrib.model.json import JsonObject, dumps, loads
from toolcrib.model.policy import Bundle
from toolcrib.model.projects import Project
from toolcrib.store.batch import ConstraintError
from toolcrib.store.engine import Store
from toolcrib.store.schema import bundles, projects


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
        raise Conflict("bundle.exists", f"Bundle {bundle.id} already exists.") from error


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


async def load_projects(store: Store) -> list[Project]:
    """Return all projects in order of their paths, without their trust."""
    query = select(projects).order_by(projects.c.path)
    rows = await store.read(lambda connection: connection.execute(query).all())
    return [Project(row.path, agent=row.agent, bundles=tuple(loads(row.bundles))) for row in rows]


async def save_project(store: Store, project: Project) -> None:
    """Store a project's agent and bundles, replacing previous values."""
    values = {"path": project.path, "agent": project.agent, "bundles": dumps(list(project.bundles))}
    await store.write(delete(projects).where(projects.c.path == project.path), insert(projects).values(**values))


async def delete_project(store: Store, path: str) -> bool:
    """Delete the settings of a project; return False if there were none."""
    (gone,) = await store.write(delete(projects).where(projects.c.path == path))
    return gone == 1
