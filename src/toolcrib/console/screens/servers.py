"""The landing page: every server there is, those that need a person first."""

from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.console.respond import Console, Shown, route
from toolcrib.model.json import JsonObject
from toolcrib.model.servers import ServerState
from toolcrib.servers import Standing

WORDS: Final[dict[ServerState, tuple[str, str]]] = {
    "connected": ("Connected", "good"),
    "connecting": ("Connecting…", "soft"),
    "not_checked": ("Not checked", "soft"),
    "disabled": ("Off", "soft"),
    "shadowed": ("Shadowed", "soft"),
    "invalid": ("Setup problem", "alarm"),
    "untrusted": ("Not trusted yet", "warn"),
    "needs_auth": ("Needs sign-in", "warn"),
    "failed": ("Can't reach", "alarm"),
}
"""Each state in a person's word, and how grave it is."""
NEEDS_YOU: Final = frozenset({"invalid", "untrusted", "needs_auth", "failed"})
OFF: Final = frozenset({"disabled", "shadowed"})
GROUPS: Final = (("you", "Needs you"), ("working", "Working"), ("unchecked", "Not checked"), ("off", "Off"))
_BUTTONS: Final = {
    "needs_auth": ("Sign in", "auth"), "failed": ("Try again", "test"), "not_checked": ("Check", "test"),
    "disabled": ("Turn on", "enable"),
}  # fmt: skip
"""The one thing to do that needs no look first; the others lead to the server's page."""
_LINKS: Final = {"invalid": "Fix setup", "untrusted": "Review", "shadowed": "Compare"}


def routes(console: Console) -> list[Route]:
    """The landing page and what its buttons do."""
    screen = ServersScreen(console)
    return [
        route("/", screen.show),
        route("/servers/check", screen.check_all, "POST"),
        route("/servers/{alias}/{action:str}", screen.act, "POST"),
    ]


class ServersScreen:
    """All servers."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._links = console.crib.links

    async def show(self, request: Request) -> Response:
        """The list."""
        return await self._console.respond(request, await self._shown())

    async def check_all(self, request: Request) -> Response:
        """Connect everything that may be; the rows turn one by one while that goes on."""
        await self._links.check_all(self._place)
        return await self._console.respond(request, await self._shown())

    async def act(self, request: Request) -> Response:
        """Do the one thing that a row offers, and show the rows as they are then."""
        alias, action = request.path_params["alias"], request.path_params["action"]
        servers = self._console.crib.servers
        if action == "test":
            await self._links.test(alias, self._place)
        elif action == "enable":
            await servers.switch(alias, enabled=True, cwd=self._place)
        elif action == "disable":
            await servers.switch(alias, enabled=False, cwd=self._place)
        return await self._console.respond(request, await self._shown())

    @property
    def _place(self) -> Path | None:
        return self._console.crib.settings.default_cwd

    async def _shown(self) -> Shown:
        standings = await self._links.list(self._place)
        rows = [_row(standing) for standing in standings]
        groups = [{"title": title, "rows": [row for row in rows if row["group"] == key]} for key, title in GROUPS]
        files = {source.file for standing in standings for source in standing.entry.sources}
        value: JsonObject = {
            "groups": [group for group in groups if group["rows"]],
            "total": len(rows),
            "files": len(files),
            "unchecked": sum(row["group"] == "unchecked" for row in rows),
        }
        return Shown("servers", "Servers", "servers.html", value, "parts/server_rows.html")


def _row(standing: Standing) -> JsonObject:
    state, entry = standing.state, standing.entry
    word, tone = WORDS[state]
    button = _BUTTONS.get(state)
    return {
        "alias": entry.alias,
        "name": entry.name,
        "state": state,
        "word": word,
        "tone": tone,
        "sentence": standing.sentence,
        "places": [f"{source.client}: {source.file}" for source in entry.sources or (entry.source,)],
        "button": button[0] if button else None,
        "action": button[1] if button else None,
        "link": _LINKS.get(state),
        "on": state not in OFF,
        "group": "you" if state in NEEDS_YOU else "off" if state in OFF else _working(state),
    }


def _working(state: ServerState) -> str:
    return "unchecked" if state == "not_checked" else "working"
