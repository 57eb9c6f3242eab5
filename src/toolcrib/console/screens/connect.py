"""Connect: every coding tool that can use this crib, a button each; changes are shown first and can be taken back."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.console.respond import Console, Shown, route
from toolcrib.model.json import JsonObject
from toolcrib.servers import Asked
from toolcrib.servers.deep_links import LINKED

Work: TypeAlias = Callable[[], Awaitable[JsonObject]]
STATES: Final = {
    "connected": ("Connected", "good"),
    "stale": ("Out of date", "warn"),
    "not_connected": ("Not connected", "soft"),
    "not_installed": ("Not on this computer", "soft"),
}
"""Each state in a person's word, and how grave it is."""
_ORDER: Final = tuple(STATES)


def routes(console: Console) -> list[Route]:
    """The list, and what its buttons do."""
    screen = ConnectScreen(console)
    return [
        route("/connect", screen.show),
        route("/connect/{client}", screen.connect, "POST"),
        route("/connect/{client}/link", screen.link, "POST"),
        route("/connect/{client}/undo", screen.undo, "POST"),
    ]


class ConnectScreen:
    """Tools and this crib."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._clients = console.crib.clients

    async def show(self, request: Request) -> Response:
        """All tools, connected ones first."""
        return await self._console.respond(request, await self._shown())

    async def connect(self, request: Request) -> Response:
        """Show what would be written, or write it."""
        form = await request.form()
        asked = self._asked(request, str(form.get("agent") or "") or None)
        move, is_sure = form.get("move") is not None, form.get("do") == "save"

        async def work() -> JsonObject:
            return (await self._clients.connect(asked, move=move, dry_run=not is_sure)).to_json()

        done = await self._made("clients.connect", asked, request, work) if is_sure else await work()
        return await self._console.respond(request, await self._shown(done, move=move))

    async def link(self, request: Request) -> Response:
        """Show what a link of the tool's own would install, or make the link."""
        form = await request.form()
        asked = self._asked(request, str(form.get("agent") or "") or None)
        is_sure = form.get("do") == "save"

        async def work() -> JsonObject:
            return (await self._clients.link(asked, dry_run=not is_sure)).to_json()

        made = await self._made("clients.link", asked, request, work) if is_sure else await work()
        return await self._console.respond(request, await self._shown(linked=made))

    async def undo(self, request: Request) -> Response:
        """Bring the tool's file back to what it was, and end its token."""
        form = await request.form()
        asked = self._asked(request, str(form.get("agent") or "") or None)

        async def work() -> JsonObject:
            return (await self._clients.undo(asked)).to_json()

        done = await self._made("clients.disconnect", asked, request, work)
        return await self._console.respond(request, await self._shown(done | {"undone": True}))

    def _asked(self, request: Request, agent: str | None) -> Asked:
        return Asked(request.path_params["client"], self._console.crib.settings.default_cwd, agent)

    async def _made(self, kind: str, asked: Asked, request: Request, work: Work) -> JsonObject:
        told: JsonObject = {"client": asked.client, "agent": asked.agent}
        person = self._console.principal(request)
        return await self._console.crib.changes.make(kind, told, work, by=person, door="console")

    async def _shown(
        self, done: JsonObject | None = None, *, move: bool = False, linked: JsonObject | None = None
    ) -> Shown:
        crib = self._console.crib
        states = [state.to_json() for state in await self._clients.list(crib.settings.default_cwd)]
        rows = [state | _in_words(state) for state in states]
        value: JsonObject = {
            "clients": sorted(rows, key=lambda row: _ORDER.index(row["state"])),
            "done": {"undone": False, "reasons": [], "moved": None, **done} if done is not None else None,
            "move": move,
            "linked": linked,
            "agents": [{"id": agent.id, "name": agent.name} for agent in await crib.zoo.list()],
            "address": f"http://{self._console.address}/mcp",
        }
        return Shown("connect", "Connect", "connect.html", value, "parts/connect_body.html")


def _in_words(state: JsonObject) -> JsonObject:
    """How a tool stands, in a person's word; whether it is here, and has links that install a server."""
    word, tone = STATES[state["state"]]
    is_there = bool(state["installed"] or state["connections"])
    return {"word": word, "tone": tone, "isThere": is_there, "hasLinks": state["client"] in LINKED}
