"""The command palette: find screens, servers, tools, agents and sessions by words."""

from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.model.json import JsonObject
from toolcrib.store.sessions import SessionFilter
from toolcrib.web.console.responses import FOOT, RAIL, Console, ScreenContent, route
from toolcrib.web.console.screens.servers.list import row
from toolcrib.web.console.screens.tools.list import tool_address

_OF_EACH: Final = 6
"""Results per kind."""
_SESSIONS: Final = 100
"""Most recently used sessions that are searched."""


_ALSO: Final = (
    ("Waiting for you", "/waiting", "Ctrl Shift Y"),
    ("Add a server", "/servers/new", ""),
    ("Search the registry", "/servers/registry", ""),
)
"""Pages that are not in the rail."""


def routes(console: Console) -> list[Route]:
    """Return the route of the palette."""
    return [route("/find", FindScreen(console).show)]


class FindScreen:
    """Searches by words."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def show(self, request: Request) -> Response:
        """List everything whose name contains all words; without words, the screens."""
        words = request.query_params.get("words", "").strip()
        groups = [("Screens", self._screens(words))]
        if words:
            groups += [
                ("Servers", await self._servers(words)),
                ("Tools", await self._tools(request, words)),
                ("Agents", await self._agents(words)),
                ("Sessions", await self._sessions(words)),
            ]
        value: JsonObject = {
            "words": words,
            "groups": [{"title": title, "found": found} for title, found in groups if found],
        }
        return await self._console.respond(request, ScreenContent("", "Find", "find.html", value, "parts/found.html"))

    def _screens(self, words: str) -> list[JsonObject]:
        in_rail = [(word, address, keys) for _, address, word, keys in (*RAIL, *FOOT)]
        return _fitting(words, (*in_rail, *_ALSO))

    async def _servers(self, words: str) -> list[JsonObject]:
        rows = [row(status) for status in await self._console.crib.upstreams.list(self._console.place)]
        return _fitting(words, ((str(each["name"]), str(each["href"]), str(each["word"])) for each in rows))

    async def _tools(self, request: Request, words: str) -> list[JsonObject]:
        principal = await self._console.local_principal(request)
        gate = self._console.crib.gate
        found = [each.tool for each in await gate.search.find(gate.listing(principal), words, _OF_EACH)]
        return [_link(f"{tool.ref.server} › {tool.ref.tool}", tool_address(tool.ref), "") for tool in found]

    async def _agents(self, words: str) -> list[JsonObject]:
        agents = await self._console.crib.zoo.list()
        return _fitting(words, ((agent.name, f"/agents/{quote(agent.id, safe='')}", agent.id) for agent in agents))

    async def _sessions(self, words: str) -> list[JsonObject]:
        sessions = await self._console.crib.sessions.list(SessionFilter(limit=_SESSIONS))
        return _fitting(words, ((each.title or "Untitled", f"/sessions/{each.id}", each.state) for each in sessions))


def _fitting(words: str, things: Iterable[tuple[str, str, str]]) -> list[JsonObject]:
    """Return the first matches; without words, everything."""
    wanted = words.casefold().split()
    fitting = [_link(*each) for each in things if all(word in each[0].casefold() for word in wanted)]
    return fitting[:_OF_EACH] if wanted else fitting


def _link(name: str, href: str, note: str) -> JsonObject:
    return {"name": name, "href": href, "note": note}
