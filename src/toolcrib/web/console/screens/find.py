"""The command palette: find screens, servers, tools, agents and sessions by words."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.gate.search.search_tools import miss
from toolcrib.gate.signatures import purpose, signature
from toolcrib.model.json import JsonObject
from toolcrib.store.sessions import SessionFilter
from toolcrib.web.console.responses import FOOT, RAIL, Console, ScreenContent, route
from toolcrib.web.console.screens.servers.list import row
from toolcrib.web.console.screens.tools.list import tool_address

if TYPE_CHECKING:
    from toolcrib.gate.search.index import FoundTool

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
        hint = ""
        if words:
            tools, hint = await self._tools(request, words)
            groups += [
                ("Servers", await self._servers(words)),
                ("Tools", tools),
                ("Agents", await self._agents(words)),
                ("Sessions", await self._sessions(words)),
            ]
        value: JsonObject = {
            "words": words,
            "hint": hint,
            "groups": [{"title": title, "found": found} for title, found in groups if found],
        }
        return await self._console.respond(request, ScreenContent("", "Find", "find.html", value, "parts/found.html"))

    def _screens(self, words: str) -> list[JsonObject]:
        in_rail = [(word, address, keys) for _, address, word, keys in (*RAIL, *FOOT)]
        return _fitting(words, (*in_rail, *_ALSO))

    async def _servers(self, words: str) -> list[JsonObject]:
        rows = [row(status) for status in await self._console.crib.upstreams.list(self._console.place)]
        return _fitting(words, ((str(each["name"]), str(each["href"]), str(each["word"])) for each in rows))

    async def _tools(self, request: Request, words: str) -> tuple[list[JsonObject], str]:
        """Return the best tools, or a hint if nothing matches."""
        principal = await self._console.local_principal(request)
        gate = self._console.crib.gate
        found = await gate.search.find(gate.listing(principal), words, _OF_EACH)
        return [_tool_link(each) for each in found], "" if found else miss(words, gate.servers(principal))

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


def _tool_link(found: "FoundTool") -> JsonObject:
    tool = found.tool
    note = f"{purpose(tool)} {signature(tool)} score {found.score:.2f}"
    return _link(f"{tool.ref.server} › {tool.ref.tool}", tool_address(tool.ref), note)


def _link(name: str, href: str, note: str) -> JsonObject:
    return {"name": name, "href": href, "note": note}
