"""`/api/projects`: directories with their own default agent and bundles, identified by path."""

from typing import Annotated

from fastapi import Depends

from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.projects import Project
from toolcrib.web.api.changing import Changing, owner_changes
from toolcrib.web.api.policy.shapes import ProjectFields, ProjectRequest, ProjectShape, RemovedShape
from toolcrib.web.api.reading import StrictRoute, owner_only, path_of
from toolcrib.web.api.resource import Resource


def routes(crib: Crib) -> Resource:
    """Return the routes of this crib."""
    router = Resource("projects", StrictRoute)
    owner, changes = Depends(owner_only(crib)), Depends(owner_changes(crib))

    @router.get("", response_model=list[ProjectShape], response_model_exclude_unset=True)
    async def list_projects(principal: Annotated[Principal, owner]) -> list[JsonObject]:
        """List all configured projects."""
        return [project.to_json() for project in await crib.permissions.projects.list()]

    @router.post("", response_model=ProjectShape, response_model_exclude_unset=True, status_code=201)
    async def create_project(change: Annotated[Changing, changes], body: ProjectRequest) -> JsonObject:
        """Set a project's agent and bundles."""
        return await _save(crib, change, body.path, body)

    @router.get("/{path:path}", response_model=ProjectShape, response_model_exclude_unset=True)
    async def show_project(principal: Annotated[Principal, owner], path: str) -> JsonObject:
        """Return one project."""
        return (await crib.permissions.projects.get(str(path_of(path)))).to_json()

    @router.put("/{path:path}", response_model=ProjectShape, response_model_exclude_unset=True)
    async def replace_project(change: Annotated[Changing, changes], path: str, body: ProjectFields) -> JsonObject:
        """Replace a project's agent and bundles."""
        return await _save(crib, change, path, body)

    @router.delete("/{path:path}", response_model=RemovedShape)
    async def remove_project(change: Annotated[Changing, changes], path: str) -> JsonObject:
        """Remove a project's settings. Trust in its servers is kept."""
        named = str(path_of(path))
        await change.make("projects.remove", {"path": named}, lambda: crib.permissions.projects.remove(named))
        return {"id": path}

    return router


async def _save(crib: Crib, change: Changing, path: str, fields: ProjectFields) -> JsonObject:
    crib.permissions.require_agent(fields.agent_id)
    project = Project(str(path_of(path)), agent=fields.agent_id, bundles=tuple(dict.fromkeys(fields.bundles)))
    return (
        await change.make("projects.change", project.to_json(), lambda: crib.permissions.projects.save(project))
    ).to_json()
