"""Tools: search and filter all tools, and review changed definitions."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject, digest
from toolcrib.model.pins import PIN_KINDS, PinKind
from toolcrib.model.principals import Principal
from toolcrib.model.tools import Tool, ToolRef
from toolcrib.web.console.paging import list_page
from toolcrib.web.console.responses import Console, ScreenContent, back, route
from toolcrib.web.tool_costs import tool_costs
from toolcrib.web.tool_hiding import HidingScope, hide, hiding_rules, show_again, unused_tools
from toolcrib.web.tool_shortening import shortenable, shortened

ToolKind = Literal["reads", "writes", "destroys"]
KINDS: Final[dict[str, tuple[str, str]]] = {
    "reads": ("reads", "good"),
    "writes": ("writes", "warn"),
    "destroys": ("destroys", "alarm"),
}
"""Per effect of a tool: label and tone."""
DIFFERENCES: Final = {
    "description": "Description changed",
    "title": "Title changed",
    "instructions": "Server instructions changed",
    "annotation": "Hint changed",
    "argument_added": "Argument added",
    "argument_removed": "Argument removed",
    "argument_required": "Argument is now required",
    "argument_optional": "Argument is now optional",
    "argument_description": "Argument description changed",
    "argument_widened": "Argument accepts more values",
    "argument_narrowed": "Argument accepts fewer values",
    "argument_changed": "Argument changed",
    "arguments": "Argument schema changed",
    "output": "Output schema changed",
    "other": "Other change",
}
TOOLS_ON_PAGE: Final = 100
_MOST_FOUND: Final = 1_000
"""Limit of the tools that a search finds."""
_LONGEST: Final = 200
"""Characters of a description in a row."""
CHANGES_ON_PAGE: Final = 20


def routes(console: Console) -> list[Route]:
    """Return the routes of the list and of definition reviews."""
    screen = ToolsScreen(console)
    return [
        route("/tools", screen.show),
        route("/tools/hide", screen.hide, "POST"),
        route("/tools/hide/undo", screen.show_hidden, "POST"),
        route("/tools/shorten", screen.shorten, "POST"),
        route("/tools/shorten/undo", screen.list_whole, "POST"),
        route("/tools/{server}/{tool:path}/accept", screen.accept, "POST"),
        route("/tools/{server}/{tool:path}/reject", screen.reject, "POST"),
    ]


class ToolsScreen:
    """Lists all tools."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def show(self, request: Request) -> Response:
        """List the tools that match the query."""
        principal = await self._console.local_principal(request)
        asked = {key: request.query_params.get(key, "").strip() for key in ("words", "kind", "server")}
        gate = self._console.crib.gate
        listing = gate.listing(principal)
        everything = listing.tools
        changes = pending_changes(self._console, principal)
        found = list(everything)
        if asked["words"]:
            found = [each.tool for each in await gate.search.find(listing, asked["words"], _MOST_FOUND)]
        of_server = [tool for tool in found if asked["server"] in ("", tool.ref.server)]
        fitting = [tool for tool in of_server if asked["kind"] in ("", kind_of(tool))]
        shown = list_page(request, [] if asked["kind"] == "changed" else fitting, TOOLS_ON_PAGE)
        place = self._console.place
        value: JsonObject = {
            **asked,
            "total": len(everything),
            "found": shown.links["total"],
            "tools": [tool_row(tool) for tool in shown.items],
            "links": shown.links,
            "changes": changes[:CHANGES_ON_PAGE] if asked["kind"] in ("", "changed") else [],
            "changed": len(changes),
            "kinds": _kind_facets(of_server, asked, len(changes)),
            "servers": _server_facets(found, asked),
            "cost": (await tool_costs(self._console.crib, replace(principal, source="ide"))).to_json(),
            "hidden": len(hiding_rules(self._console.crib, HidingScope())),
            "shortened": len(shortened(self._console.crib)),
            "hasHints": any(tool.kind == "upstream" and tool.annotations for tool in everything),
            "missing": [problem.to_json() for problem in await self._console.crib.upstreams.unknown(place)],
        }
        return await self._console.respond(
            request, ScreenContent("tools", "Tools", "tools.html", value, "parts/tool_rows.html")
        )

    async def hide(self, request: Request) -> Response:
        """Hide the unused tools of a server from apps."""
        server = str((await request.form()).get("server", ""))
        crib, person = self._console.crib, self._console.principal(request)
        scope = HidingScope(source="ide", server=server)
        tools = await unused_tools(crib, scope, (await self._console.local_principal(request)).cwd)
        if tools:
            details = {**scope.to_json(), "tools": [str(each.ref) for each in tools]}
            work = partial(hide, crib, tools, scope, by=person.name)
            await crib.changes.make("tools.hide", details, work, by=person, door="console")
        return back("/tools")

    async def show_hidden(self, request: Request) -> Response:
        """Remove all rules that hide unused tools."""
        crib, person, scope = self._console.crib, self._console.principal(request), HidingScope()
        rules = hiding_rules(crib, scope)
        if rules:
            details = {**scope.to_json(), "patterns": [rule.pattern for rule in rules]}
            work = partial(show_again, crib, rules)
            await crib.changes.make("tools.unhide", details, work, by=person, door="console")
        return back("/tools")

    async def shorten(self, request: Request) -> Response:
        """List the tools of a server without text that their descriptions repeat."""
        server = str((await request.form()).get("server", ""))
        crib, person = self._console.crib, self._console.principal(request)
        found = await shortenable(crib, [server], (await self._console.local_principal(request)).cwd)
        if found:
            tools = [tool for tool, _ in found]
            work = partial(crib.gate.shortened.add, tools)
            details: JsonObject = {"tools": [str(tool.ref) for tool in tools]}
            await crib.changes.make("tools.shorten", details, work, by=person, door="console")
        return back("/tools")

    async def list_whole(self, request: Request) -> Response:
        """List all shortened tools whole again."""
        crib, person = self._console.crib, self._console.principal(request)
        if refs := shortened(crib):
            work = partial(crib.gate.shortened.remove, refs)
            details: JsonObject = {"tools": [str(ref) for ref in refs]}
            await crib.changes.make("tools.unshorten", details, work, by=person, door="console")
        return back("/tools")

    async def accept(self, request: Request) -> Response:
        """Accept the definition that was reviewed."""
        return await self._review(request, "tools.accept")

    async def reject(self, request: Request) -> Response:
        """Reject the definition that was reviewed."""
        return await self._review(request, "tools.reject")

    async def _review(self, request: Request, kind: Literal["tools.accept", "tools.reject"]) -> Response:
        form = await request.form()
        principal, ref, hash = await self._console.local_principal(request), ref_of(request), str(form.get("hash", ""))
        named = form.get("what", "tool")
        what: PinKind | None = next((each for each in PIN_KINDS if each == named), None)
        if not hash or what is None:
            raise InvalidRequest("request.malformed", "`hash` and `what` are required.")
        if what == "instructions":
            ref = ToolRef(ref.server, "")
        intake, place = self._console.crib.intake, place_of(principal)
        decide = intake.accept if kind == "tools.accept" else intake.reject
        reviewed: JsonObject = {"ref": str(ref) if ref.tool else ref.server, "hash": hash}
        await self._console.crib.changes.make(
            kind,
            reviewed if what == "tool" else reviewed | {"what": what},
            lambda: decide(place, ref, hash, self._console.principal(request), what),
            by=self._console.principal(request),
            door="console",
        )
        accepted_tool = kind == "tools.accept" and what == "tool"
        return back(tool_address(ref) if accepted_tool else "/tools?kind=changed")


def ref_of(request: Request) -> ToolRef:
    """Return the tool named by the URL."""
    return ToolRef(request.path_params["server"], request.path_params["tool"])


def tool_address(ref: ToolRef) -> str:
    """Return the URL of a tool."""
    return f"/tools/{quote(ref.server, safe='')}/{quote(ref.tool, safe='')}"


def kind_of(tool: Tool) -> ToolKind:
    """Return what a tool does by its effective hints; the graver one if they contradict."""
    if tool.marks.destructive:
        return "destroys"
    return "reads" if tool.marks.read_only else "writes"


def tool_row(tool: Tool) -> JsonObject:
    """Return a tool as a table row."""
    kind = kind_of(tool)
    first = next(iter(tool.description.strip().splitlines()), "")
    return {
        "ref": str(tool.ref),
        "server": tool.ref.server,
        "name": tool.ref.tool,
        "title": tool.title,
        "description": first if len(first) <= _LONGEST else f"{first[:_LONGEST]}…",
        "kind": kind,
        "tone": KINDS[kind][1],
        "href": tool_address(tool.ref),
        "problems": len(tool.problems),
    }


def pending_changes(console: Console, principal: Principal) -> list[JsonObject]:
    """Return the definitions that are pending or rejected, with their differences in words."""
    return [change_shape(change) for change in console.crib.intake.changes(place_of(principal))]


def unaccepted_hash(console: Console, principal: Principal, tool: Tool) -> str | None:
    """Return the definition's hash if its hints are ignored because it was not accepted yet."""
    source = console.crib.pool.find(tool.ref.server, place_of(principal))
    if tool.kind != "upstream" or not tool.annotations or source is None:
        return None
    return None if console.crib.pins.is_accepted(source.identity, tool) else digest(tool.definition)


def change_shape(change: JsonObject) -> JsonObject:
    """Return one changed definition."""
    ref = ToolRef(str(change["server"]), str(change["tool"]) or str(change["what"]))
    differences = [each | {"words": DIFFERENCES[str(each["kind"])]} for each in change["differences"]]
    rejected = change.get("rejectedBy")
    return change | {"differences": differences, "rejectedBy": rejected, "href": tool_address(ref)}


def place_of(principal: Principal) -> Path | None:
    """Return the principal's working directory."""
    return Path(principal.cwd) if principal.cwd is not None else None


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
    """Return a filter link; the link of an active filter removes it."""
    chosen = asked[name] == value
    query = {key: each for key, each in {**asked, name: "" if chosen else value}.items() if each}
    return {"words": words, "href": "/tools" + (f"?{urlencode(query)}" if query else ""), "chosen": chosen}
