"""Connect: every coding tool that can use this crib, a button each; changes are shown first and can be taken back."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.console.respond import Console, Shown, route
from toolcrib.model.json import JsonObject
from toolcrib.servers import Asked

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

    async def _shown(self, done: JsonObject | None = None, *, move: bool = False) -> Shown:
        crib = self._console.crib
        states = [state.to_json() for state in await self._clients.list(crib.settings.default_cwd)]
        rows = [state | dict(zip(("word", "tone"), STATES[state["state"]], strict=True)) for state in states]
        value: JsonObject = {
            "clients": sorted(rows, key=lambda row: _ORDER.index(row["state"])),
            "done": {"undone": False, "reasons": [], "moved": None, **done} if done is not None else None,
            "move": move,
            "agents": [{"id": agent.id, "name": agent.name} for agent in await crib.zoo.list()],
            "address": f"http://{self._console.address}/mcp",
        }
        return Shown("connect", "Connect", "connect.html", value, "parts/connect_body.html")
