"""Crew tools for projects: list them, and find the current one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, NotRequired

from typing_extensions import TypedDict

from toolcrib.builtin.caller import Calling
from toolcrib.gate.policy.bundles import Projects
from toolcrib.gate.policy.zones import is_inside
from toolcrib.model.projects import Project
from toolcrib.tools import Inject, tool


class ShownProject(TypedDict):
    """One project."""

    path: str
    trusted: bool
    bundles: list[str]
    agentId: NotRequired[str]


class ListedProjects(TypedDict):
    """The answer to `crib_list_projects`."""

    projects: list[ShownProject]


class CurrentProject(TypedDict):
    """The answer to `crib_current_project`; null where the directory belongs to none."""

    cwd: str
    project: ShownProject | None


@dataclass(frozen=True, slots=True)
class ProjectDirectory:
    """The projects of a crib; `cwd` is the default directory for callers without one."""

    projects: Projects
    cwd: Callable[[], str]


Directory = Annotated[ProjectDirectory, Inject]


@tool(read_only=True, title="List projects")
async def crib_list_projects(*, directory: Directory) -> ListedProjects:
    """List the configured projects. Use it to find the directory of a project.

    Returns path, whether it is trusted, its bundles, and its default agent if it has one.
    """
    return {"projects": [_project_json(project) for project in await directory.projects.list()]}


@tool(read_only=True, title="Show the current project")
async def crib_current_project(*, directory: Directory, context: Calling) -> CurrentProject:
    """Show your working directory and its project. Use it before you work on files.

    Returns cwd and project; for nested projects, the innermost.
    """
    cwd = context.principal.cwd or directory.cwd()
    around = [project for project in await directory.projects.list() if is_inside(cwd, project.path)]
    innermost = max(around, key=lambda project: len(project.path), default=None)
    return {"cwd": cwd, "project": _project_json(innermost) if innermost is not None else None}


def _project_json(project: Project) -> ShownProject:
    shown: ShownProject = {"path": project.path, "trusted": project.trusted, "bundles": list(project.bundles)}
    return shown if project.agent is None else {**shown, "agentId": project.agent}


TOOLS = (crib_list_projects, crib_current_project)
