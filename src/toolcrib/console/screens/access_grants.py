"""What is granted together: bundles of tools, and the directories that have an agent and bundles of their own."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.console.forms import Fields, read
from toolcrib.console.respond import Console, Shown, back, route
from toolcrib.errors import InvalidRequest, NotFound
from toolcrib.model.agents import slug
from toolcrib.model.json import JsonObject
from toolcrib.model.policy import Bundle
from toolcrib.model.projects import Project


def routes(console: Console) -> list[Route]:
    """Both lists, and what is done to them."""
    screen = GrantsScreen(console)
    return [
        route("/access/bundles", screen.bundles),
        route("/access/bundles", screen.create_bundle, "POST"),
        route("/access/bundles/{id}", screen.change_bundle, "POST"),
        route("/access/bundles/{id}/remove", screen.remove_bundle, "POST"),
        route("/access/projects", screen.projects),
        route("/access/projects", screen.save_project, "POST"),
        route("/access/projects/remove", screen.remove_project, "POST"),
    ]


class GrantsScreen:
    """Bundles and projects."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._crib = console.crib
        self._permissions = console.crib.permissions

    async def bundles(self, request: Request) -> Response:
        """All bundles, those that come with Toolcrib first."""
        value: JsonObject = {"bundles": [each.to_json() for each in self._permissions.bundles.list()]}
        return await self._console.respond(request, Shown("access", "Bundles", "access_bundles.html", value))

    async def create_bundle(self, request: Request) -> Response:
        """Make a bundle; its id is made from its name where none is given."""
        form = await read(request)
        name = form.line("name") or ""
        bundle = _bundle(form.line("id") or slug(name, fallback="bundle"), form)
        create = self._permissions.bundles.create
        await self._make(request, "bundles.create", bundle, create)
        return back("/access/bundles")

    async def change_bundle(self, request: Request) -> Response:
        """Change a bundle as a whole."""
        bundle = _bundle(request.path_params["id"], await read(request))
        await self._make(request, "bundles.change", bundle, self._permissions.bundles.replace)
        return back("/access/bundles")

    async def remove_bundle(self, request: Request) -> Response:
        """Remove a bundle, from the projects that have it too."""
        id: str = request.path_params["id"]
        person, remove = self._console.principal(request), self._permissions.remove_bundle
        await self._crib.changes.make("bundles.remove", {"id": id}, lambda: remove(id), by=person, door="console")
        return back("/access/bundles")

    async def projects(self, request: Request) -> Response:
        """All directories for which something is set."""
        value: JsonObject = {
            "projects": [{"agentId": None, **each.to_json()} for each in await self._permissions.projects.list()],
            "agents": [{"id": each.id, "name": each.name} for each in await self._crib.zoo.list()],
            "bundles": [{"id": each.id, "name": each.name} for each in self._permissions.bundles.list()],
        }
        return await self._console.respond(request, Shown("access", "Projects", "access_projects.html", value))

    async def save_project(self, request: Request) -> Response:
        """Set a directory's agent and bundles, whatever was set before."""
        form = await read(request)
        agent = form.line("agent")
        if agent is not None and not self._permissions.has_agent(agent):
            raise NotFound("agent.unknown", f"There is no agent {agent!r}.")
        project = Project(_path(form), agent=agent, bundles=tuple(dict.fromkeys(form.all("bundle"))))
        person, save = self._console.principal(request), self._permissions.projects.save
        await self._crib.changes.make(
            "projects.change", project.to_json(), lambda: save(project), by=person, door="console"
        )
        return back("/access/projects")

    async def remove_project(self, request: Request) -> Response:
        """Forget what was set for a directory."""
        path = _path(await read(request))
        person, remove = self._console.principal(request), self._permissions.projects.remove
        await self._crib.changes.make(
            "projects.remove", {"path": path}, lambda: remove(path), by=person, door="console"
        )
        return back("/access/projects")

    async def _make(
        self, request: Request, kind: str, bundle: Bundle, work: Callable[[Bundle], Awaitable[Bundle]]
    ) -> None:
        person = self._console.principal(request)
        await self._crib.changes.make(kind, bundle.to_json(), lambda: work(bundle), by=person, door="console")


def _bundle(id: str, form: Fields) -> Bundle:
    return Bundle(
        id, form.line("name") or id, tuple(form.lines("tools")), form.text("description"), form.text("prompt")
    )


def _path(form: Fields) -> str:
    text = form.line("path") or ""
    if not Path(text).is_absolute() or "\0" in text:
        raise InvalidRequest("request.invalid", f"{text!r} is not an absolute path.")
    return text
