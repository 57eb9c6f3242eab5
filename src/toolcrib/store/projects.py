"""Settings of projects: their default agent and bundles. Trust is stored elsewhere."""

from sqlalchemy import delete, insert, select

from toolcrib.model.json import dumps, loads
from toolcrib.model.projects import Project
from toolcrib.store.engine import Store
from toolcrib.store.schema import projects


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
