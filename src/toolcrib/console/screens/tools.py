"""Tools: all of them, found by words and kinds, and what waits for a person's word because it changed."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.catalog.search import search
from toolcrib.console.respond import Console, Shown, back, route
from toolcrib.errors import InvalidRequest
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.tools import Tool, ToolRef

ToolKind = Literal["reads", "writes", "destroys"]
KINDS: Final[dict[str, tuple[str, str]]] = {
    "reads": ("reads", "good"),
    "writes": ("writes", "warn"),
    "destroys": ("destroys", "alarm"),
}
"""What a tool does, in a word, and how grave that is."""
DIFFERENCES: Final = {
    "description": "The description is another",
    "title": "The title is another",
    "annotation": "What it says of itself changed",
    "argument_added": "It takes one more argument",
    "argument_removed": "An argument is gone",
    "argument_required": "An argument is needed now",
    "argument_optional": "An argument is no longer needed",
    "argument_description": "An argument is described otherwise",
    "argument_widened": "An argument takes more than before",
    "argument_narrowed": "An argument takes less than before",
    "argument_changed": "An argument is another",
    "arguments": "The arguments as a whole changed",
    "output": "What it gives back is described otherwise",
    "other": "Something else changed",
}
_SHOWN: Final = 200
"""Tools on one page; words find the others."""


def routes(console: Console) -> list[Route]:
    """The list, and a person's word on definitions."""
    screen = ToolsScreen(console)
    return [
        route("/tools", screen.show),
        route("/tools/{server}/{tool:path}/accept", screen.accept, "POST"),
        route("/tools/{server}/{tool:path}/reject", screen.reject, "POST"),
    ]


class ToolsScreen:
    """All tools."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def show(self, request: Request) -> Response:
        """The tools that fit what is asked for in the address."""
        asker = await self._console.asker(request)
        asked = {key: request.query_params.get(key, "").strip() for key in ("words", "kind", "server")}
        everything = self._console.crib.gate.listing(asker).tools
        changes = held(self._console, asker)
        found = search(everything, asked["words"]) if asked["words"] else list(everything)
        of_server = [tool for tool in found if asked["server"] in ("", tool.ref.server)]
        fitting = [tool for tool in of_server if asked["kind"] in ("", kind_of(tool))]
        place = self._console.place
        value: JsonObject = {
            **asked,
            "total": len(everything),
            "found": 0 if asked["kind"] == "changed" else len(fitting),
            "tools": [tool_row(tool) for tool in ([] if asked["kind"] == "changed" else fitting[:_SHOWN])],
            "changes": changes if asked["kind"] in ("", "changed") else [],
            "kinds": _kind_facets(of_server, asked, len(changes)),
            "servers": _server_facets(found, asked),
            "missing": [problem.to_json() for problem in await self._console.crib.links.unknown(place)],
        }
        return await self._console.respond(
            request, Shown("tools", "Tools", "tools.html", value, "parts/tool_rows.html")
        )

    async def accept(self, request: Request) -> Response:
        """Let a definition count that a person has looked at."""
        return await self._judge(request, "tools.accept")

    async def reject(self, request: Request) -> Response:
        """Keep a definition out that a person has looked at."""
        return await self._judge(request, "tools.reject")

    async def _judge(self, request: Request, kind: Literal["tools.accept", "tools.reject"]) -> Response:
        form = await request.form()
        asker, ref, hash = await self._console.asker(request), ref_of(request), str(form.get("hash", ""))
        if not hash:
            raise InvalidRequest("request.malformed", "Say which definition is meant.")
        intake, place = self._console.crib.intake, place_of(asker)
        decide = intake.accept if kind == "tools.accept" else intake.reject
        await self._console.crib.changes.make(
            kind,
            {"ref": str(ref), "hash": hash},
            lambda: decide(place, ref, hash, self._console.principal(request)),
            by=self._console.principal(request),
            door="console",
        )
        return back(tool_address(ref) if kind == "tools.accept" else "/tools?kind=changed")


def ref_of(request: Request) -> ToolRef:
    """The tool that an address names."""
    return ToolRef(request.path_params["server"], request.path_params["tool"])


def tool_address(ref: ToolRef) -> str:
    """Where a tool is shown."""
    return f"/tools/{quote(ref.server, safe='')}/{quote(ref.tool, safe='')}"


def kind_of(tool: Tool) -> ToolKind:
    """What a tool does, as far as a word on it counts; of two that contradict each other the graver one."""
    if tool.marks.destructive:
        return "destroys"
    return "reads" if tool.marks.read_only else "writes"


def tool_row(tool: Tool) -> JsonObject:
    """A tool in one line."""
    kind = kind_of(tool)
    first = next(iter(tool.description.strip().splitlines()), "")
    return {
        "ref": str(tool.ref),
        "server": tool.ref.server,
        "name": tool.ref.tool,
        "title": tool.title,
        "description": first,
        "kind": kind,
        "tone": KINDS[kind][1],
        "href": tool_address(tool.ref),
        "problems": len(tool.problems),
    }


def held(console: Console, asker: Principal) -> list[JsonObject]:
    """The definitions that wait for a person or were rejected, each with what differs, in words."""
    return [change_shape(change) for change in console.crib.intake.changes(place_of(asker))]


def change_shape(change: JsonObject) -> JsonObject:
    """One changed definition."""
    ref = ToolRef.parse(str(change["ref"])) or ToolRef(str(change["server"]), str(change["tool"]))
    differences = [each | {"words": DIFFERENCES[str(each["kind"])]} for each in change["differences"]]
    rejected = change.get("rejectedBy")
    return change | {"differences": differences, "rejectedBy": rejected, "href": tool_address(ref)}


def place_of(asker: Principal) -> Path | None:
    """The directory whose servers are meant."""
    return Path(asker.cwd) if asker.cwd is not None else None


def _kind_facets(tools: Sequence[Tool], asked: JsonObject, changed: int) -> list[JsonObject]:
    counts = {kind: sum(kind_of(tool) == kind for tool in tools) for kind in KINDS}
    return [
        _facet(asked, "kind", kind, f"{kind} {number}")
        for kind, number in [*counts.items(), ("changed", changed)]
        if number or asked["kind"] == kind
    ]


def _server_facets(tools: Iterable[Tool], asked: JsonObject) -> list[JsonObject]:
    counts: dict[str, int] = {}
    for tool in tools:
        counts[tool.ref.server] = counts.get(tool.ref.server, 0) + 1
    return [_facet(asked, "server", server, f"{server} {number}") for server, number in sorted(counts.items())]


def _facet(asked: JsonObject, name: str, value: str, words: str) -> JsonObject:
    """A way to narrow the list; that of what is chosen leads back."""
    chosen = asked[name] == value
    query = {key: each for key, each in {**asked, name: "" if chosen else value}.items() if each}
    return {"words": words, "href": "/tools" + (f"?{urlencode(query)}" if query else ""), "chosen": chosen}
