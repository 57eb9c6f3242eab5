"""Search the MCP registry, review a published server, set its values, add and test it."""

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.model.errors import ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.servers.registry.registry import PlanRequest
from toolcrib.servers.registry.registry_api import LATEST
from toolcrib.web.console.responses import Console, ScreenContent, error_json, route
from toolcrib.web.console.screens.servers.server import ServerScreen

_FIELD = "value-"
"""The prefix of a form field with the value of an input."""


def routes(console: Console) -> list[Route]:
    """Return the routes; must precede those of a server, which could be named `registry`."""
    screen = RegistryScreen(console)
    return [
        route("/servers/registry", screen.show),
        route("/servers/registry", screen.review, "POST"),
        route("/servers/registry/add", screen.add, "POST"),
    ]


class RegistryScreen:
    """Finds servers in the registry and adds them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._registry = console.crib.registry
        self._page = ServerScreen(console)

    async def show(self, request: Request) -> Response:
        """Show the search box and what was found."""
        words = request.query_params.get("words", "").strip()
        value: JsonObject = {"words": words, "found": [], "plan": None, "failure": None}
        if words:
            try:
                value["found"] = [each.to_json() for each in await self._registry.search(words)]
            except ToolcribError as error:
                value["failure"] = error_json(error)
        return await self._respond(request, value)

    async def review(self, request: Request) -> Response:
        """Show what a published server would run, with fields for its values."""
        return await self._review(request, await request.form())

    async def add(self, request: Request) -> Response:
        """Add the reviewed server and test it."""
        form = await request.form()
        try:
            plan, done = await self._registry.install(_request(form), shown=str(form.get("digest", "")))
        except ToolcribError as error:
            return await self._review(request, form, error_json(error))
        place = self._console.place
        alias = (await self._console.crib.servers.find(plan.name, place, file=done.file)).alias
        untried: JsonObject = {}
        try:
            await self._console.crib.upstreams.test(alias, place)
        except ToolcribError as error:
            untried = {"untried": error.message}
        return await self._page.page(request, alias, "tools", change=done.to_json() | untried)

    async def _review(self, request: Request, form: FormData, failure: JsonObject | None = None) -> Response:
        asked = _request(form)
        value: JsonObject = {"words": str(form.get("words", "")), "found": [], "plan": None, "failure": failure}
        try:
            plan = await self._registry.plan(asked)
            given = {name: values[-1] for name, values in asked.values.items()}
            value |= {"plan": plan.to_json(), "values": given, "option": asked.option, "version": asked.version}
        except ToolcribError as error:
            value["failure"] = failure or error_json(error)
        return await self._respond(request, value)

    async def _respond(self, request: Request, value: JsonObject) -> Response:
        value["registry"] = self._registry.address
        return await self._console.respond(
            request, ScreenContent("servers", "MCP registry", "server_registry.html", value)
        )


def _request(form: FormData) -> PlanRequest:
    fields = {key: str(value) for key, value in form.items()}
    values = {key.removeprefix(_FIELD): [value] for key, value in fields.items() if key.startswith(_FIELD) and value}
    return PlanRequest(
        fields.get("name", ""),
        fields.get("version") or LATEST,
        fields.get("option") or None,
        fields.get("localName") or None,
        values,
    )
