"""What was set for projects: their default agent and their bundles. Whether a project is trusted stands elsewhere."""

import orjson
from sqlalchemy import delete, insert, select

from toolcrib.model.projects import Project
from toolcrib.store.engine import Store
from toolcrib.store.schema import projects


async def load_projects(store: Store) -> list[Project]:
    """All projects in order of their paths, none of them known to be trusted."""
    query = select(projects).order_by(projects.c.path)
    rows = await store.read(lambda connection: connection.execute(query).all())
    return [Project(row.path, agent=row.agent, bundles=tuple(orjson.loads(row.bundles))) for row in rows]


async def save_project(store: Store, project: Project) -> None:
    """Set a project's agent and bundles, whatever was set before."""
    values = {"path": project.path, "agent": project.agent, "bundles": orjson.dumps(list(project.bundles))}
    await store.write(delete(projects).where(projects.c.path == project.path), insert(projects).values(**values))


async def delete_project(store: Store, path: str) -> bool:
    """Forget what was set for a project; false if nothing was."""
    (gone,) = await store.write(delete(projects).where(projects.c.path == path))
    return gone == 1
