"""Connect: every app that can use this crib. Changes are previewed first and can be undone."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.model.json import JsonObject
from toolcrib.model.tokens import Level
from toolcrib.servers.apps.connectable import ConnectScope
from toolcrib.servers.apps.connections import AppConnectRequest
from toolcrib.servers.apps.deep_links import LINKED
from toolcrib.web.connecting import connect_app, disconnect_app, link_app
from toolcrib.web.console.responses import Console, ScreenContent, route
from toolcrib.web.tool_costs import APP_TOOLS, AppTools, offers_of, with_offers

Work: TypeAlias = Callable[[], Awaitable[JsonObject]]
STATES: Final = {
    "connected": ("Connected", "good"),
    "stale": ("Out of date", "warn"),
    "not_connected": ("Not connected", "soft"),
    "not_installed": ("Not installed", "soft"),
}
"""Per state: label and tone."""
_ORDER: Final = tuple(STATES)


def routes(console: Console) -> list[Route]:
    """Return the routes of the apps."""
    screen = ConnectScreen(console)
    return [
        route("/connect", screen.show),
        route("/connect/{client}", screen.connect, "POST"),
        route("/connect/{client}/link", screen.link, "POST"),
        route("/connect/{client}/undo", screen.undo, "POST"),
    ]


class ConnectScreen:
    """Connects apps to this crib."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._clients = console.crib.clients

    async def show(self, request: Request) -> Response:
        """List all apps, connected ones first."""
        return await self._console.respond(request, await self._content())

    async def connect(self, request: Request) -> Response:
        """Preview the change, or write it."""
        form = await request.form()
        asked = self._read_request(request, form)
        move, is_sure = form.get("move") is not None, form.get("do") == "save"
        crib, by, tools = self._console.crib, self._console.principal(request).name, _tools(form)

        async def work() -> JsonObject:
            return await connect_app(crib, asked, tools, by=by, move=move, dry_run=not is_sure)

        done = await self._record("clients.connect", asked, request, work) if is_sure else await work()
        return await self._console.respond(request, await self._content(done, move=move, asked=asked, tools=tools))

    async def link(self, request: Request) -> Response:
        """Preview what an install link would add, or create the link."""
        form = await request.form()
        asked = self._read_request(request, form)
        is_sure, tools = form.get("do") == "save", _tools(form)
        crib, by = self._console.crib, self._console.principal(request).name

        async def work() -> JsonObject:
            return await link_app(crib, asked, tools, by=by, dry_run=not is_sure)

        made = await self._record("clients.link", asked, request, work) if is_sure else await work()
        return await self._console.respond(request, await self._content(linked=made, asked=asked, tools=tools))

    async def undo(self, request: Request) -> Response:
        """Restore the app's file and revoke its token."""
        form = await request.form()
        asked = self._read_request(request, form)

        async def work() -> JsonObject:
            by = self._console.principal(request).name
            return await disconnect_app(self._console.crib, asked, by=by)

        done = await self._record("clients.disconnect", asked, request, work)
        return await self._console.respond(request, await self._content(done | {"undone": True}))

    def _read_request(self, request: Request, form: FormData) -> AppConnectRequest:
        agent, chosen = str(form.get("agent") or "") or None, form.get("level")
        scope: ConnectScope = "project" if form.get("scope") == "project" else "user"
        level: Level | None = "app" if chosen == "app" else None if chosen == "keep" else "ask"
        return AppConnectRequest(request.path_params["client"], self._console.place, agent, scope, level=level)

    async def _record(self, kind: str, asked: AppConnectRequest, request: Request, work: Work) -> JsonObject:
        details: JsonObject = {"client": asked.client, "agent": asked.agent}
        person = self._console.principal(request)
        return await self._console.crib.changes.make(kind, details, work, by=person, door="console")

    async def _content(
        self,
        done: JsonObject | None = None,
        *,
        move: bool = False,
        linked: JsonObject | None = None,
        asked: AppConnectRequest | None = None,
        tools: AppTools | None = None,
    ) -> ScreenContent:
        crib = self._console.crib
        states = await with_offers(crib, await self._clients.list(self._console.place))
        rows = [state | _in_words(state) for state in states]
        value: JsonObject = {
            "clients": sorted(rows, key=lambda row: _ORDER.index(row["state"])),
            "done": {"undone": False, "reasons": [], "moved": None, **done} if done is not None else None,
            "move": move,
            "level": asked.level if asked is not None else None,
            "tools": tools,
            "linked": linked,
            "offers": offers_of(crib, None, None),
            "agents": [{"id": agent.id, "name": agent.name} for agent in await crib.zoo.list()],
            "defaultAgent": self._console.default_agent,
            "address": f"http://{self._console.address}/mcp",
        }
        return ScreenContent("connect", "Connect", "connect.html", value, "parts/connect_body.html")


def _tools(form: FormData) -> AppTools | None:
    listed = form.get("tools")
    return next((each for each in APP_TOOLS if each == listed), None)


def _in_words(state: JsonObject) -> JsonObject:
    """Return an app's state as label and tone, whether it is installed, and whether it supports install links."""
    word, tone = STATES[state["state"]]
    is_there = bool(state["installed"] or state["connections"])
    return {"word": word, "tone": tone, "isThere": is_there, "hasLinks": state["client"] in LINKED}
