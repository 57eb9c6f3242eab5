"""Bundles of tools, and projects: directories with an agent and bundles of their own."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.gate.policy.zones import is_inside
from toolcrib.model.agents import slug
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject
from toolcrib.model.policy import Bundle
from toolcrib.model.projects import Project
from toolcrib.web.console.forms import FormFields, read
from toolcrib.web.console.responses import Console, ScreenContent, back, route


def routes(console: Console) -> list[Route]:
    """Return the routes of bundles and projects."""
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
        """List all bundles, built-in ones first."""
        around = await self._around()
        granted = {id for project in around for id in project.bundles}
        value: JsonObject = {
            "bundles": [each.to_json() | {"granted": each.id in granted} for each in self._permissions.bundles.list()]
        }
        return await self._console.respond(request, ScreenContent("access", "Bundles", "access_bundles.html", value))

    async def create_bundle(self, request: Request) -> Response:
        """Create a bundle; its id defaults to a slug of its name."""
        form = await read(request)
        name = form.line("name") or ""
        bundle = _bundle(form.line("id") or slug(name, fallback="bundle"), form)
        create = self._permissions.bundles.create
        await self._make(request, "bundles.create", bundle, create)
        return back("/access/bundles")

    async def change_bundle(self, request: Request) -> Response:
        """Replace a bundle."""
        bundle = _bundle(request.path_params["id"], await read(request))
        await self._make(request, "bundles.change", bundle, self._permissions.bundles.replace)
        return back("/access/bundles")

    async def remove_bundle(self, request: Request) -> Response:
        """Remove a bundle, also from the projects that use it."""
        id: str = request.path_params["id"]
        person, remove = self._console.principal(request), self._permissions.remove_bundle
        await self._crib.changes.make("bundles.remove", {"id": id}, lambda: remove(id), by=person, door="console")
        return back("/access/bundles")

    async def projects(self, request: Request) -> Response:
        """List all configured projects."""
        around = {each.path for each in await self._around()}
        value: JsonObject = {
            "projects": [
                {"agentId": None, **each.to_json(), "chosen": each.path in around}
                for each in await self._permissions.projects.list()
            ],
            "agents": [{"id": each.id, "name": each.name} for each in await self._crib.zoo.list()],
            "bundles": [{"id": each.id, "name": each.name} for each in self._permissions.bundles.list()],
        }
        return await self._console.respond(request, ScreenContent("access", "Projects", "access_projects.html", value))

    async def _around(self) -> list[Project]:
        """Return the projects that contain the chosen directory."""
        chosen = self._console.chosen_project
        projects = await self._permissions.projects.list() if chosen is not None else ()
        return [each for each in projects if chosen is not None and is_inside(chosen, each.path)]

    async def save_project(self, request: Request) -> Response:
        """Set the agent and bundles of a project, replacing previous ones."""
        form = await read(request)
        agent = form.line("agent")
        self._permissions.require_agent(agent)
        project = Project(_path(form), agent=agent, bundles=tuple(dict.fromkeys(form.all("bundle"))))
        person, save = self._console.principal(request), self._permissions.projects.save
        await self._crib.changes.make(
            "projects.change", project.to_json(), lambda: save(project), by=person, door="console"
        )
        return back("/access/projects")

    async def remove_project(self, request: Request) -> Response:
        """Remove the configuration of a project."""
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


def _bundle(id: str, form: FormFields) -> Bundle:
    return Bundle(
        id, form.line("name") or id, tuple(form.lines("tools")), form.text("description"), form.text("prompt")
    )


def _path(form: FormFields) -> str:
    text = form.line("path") or ""
    if not Path(text).is_absolute() or "\0" in text:
        raise InvalidRequest("request.invalid", f"{text!r} is not an absolute path.")
    return text
