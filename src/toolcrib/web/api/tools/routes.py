"""`/api/tools`: the catalog as a principal sees it, calls through the gate, and changes that save tokens."""

from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import Depends, Query, Request, Response
from pydantic import Field

from toolcrib.gate.catalog.naming import Form
from toolcrib.gate.gate import CallOutcome
from toolcrib.gate.pins.lint import ABOUT_OTHERS
from toolcrib.gate.search.search_tools import miss
from toolcrib.gate.signatures import purpose, signature
from toolcrib.host import Crib
from toolcrib.model.errors import NotFound
from toolcrib.model.json import JsonObject, dumps
from toolcrib.model.jsonrpc import trace_of
from toolcrib.model.principals import Principal, Source
from toolcrib.model.problems import Problem
from toolcrib.model.tools import Tool, ToolRef
from toolcrib.servers.server_status import ServerStatus
from toolcrib.web.api.changing import Changing, owner_changes
from toolcrib.web.api.reading import StrictRoute, cwd_of, door_of, principal_of, viewer_of, while_connected
from toolcrib.web.api.resource import Resource
from toolcrib.web.api.shapes import (
    CallAnswer,
    CallRequest,
    CostShape,
    FoundToolsShape,
    ListedShape,
    ProblemShape,
    Shape,
    ToolShape,
)
from toolcrib.web.tool_costs import tool_costs
from toolcrib.web.tool_hiding import HIDDEN, HidingScope, hide, hiding_rules, show_again, unused_tools
from toolcrib.web.tool_shortening import shortenable, shortened, shortened_form

if TYPE_CHECKING:
    from toolcrib.gate.search.index import FoundTool

ToolForm = Literal["claude", "endpoint", "bridge"]


def routes(crib: Crib) -> Resource:
    """Return the routes of this crib."""
    router = Resource("tools", StrictRoute)
    caller = Depends(viewer_of(crib))

    @router.get("", response_model=list[ToolShape], response_model_exclude_unset=True)
    async def list_tools(
        principal: Annotated[Principal, caller],
        server: Annotated[str | None, Query(description="Only tools of this server.")] = None,
        q: Annotated[str | None, Query(description="A sentence or words: only matches, best match first.")] = None,
        limit: Annotated[int, Query(ge=1, le=1_000, description="The most matches for `q`.")] = 50,
        form: Annotated[ToolForm, Query(description="The target of the exposed names.")] = "endpoint",
    ) -> Response:
        """List the tools that the principal sees, sorted by ref, or best match first with `q`."""
        principal = await crib.placed(principal)
        if server is not None:
            await crib.ready(principal, server)
            server = crib.gate.server(principal, server)
        listing = crib.gate.listing(principal)
        # Serialized directly, because validating thousands of tools takes longer than creating them.
        if q is None:
            tools = [tool for tool in listing.tools if server in (None, tool.ref.server)]
            shapes = [_shape(crib, principal, tool, form) for tool in tools]
        else:
            found = await crib.gate.search.find(listing, q, limit if server is None else len(listing.tools))
            matches = [each for each in found if server in (None, each.tool.ref.server)][:limit]
            shapes = [_match(crib, principal, each, form) for each in matches]
        return Response(dumps(shapes), media_type="application/json")

    @router.get("/problems", response_model=list[ProblemShape], response_model_exclude_unset=True)
    async def list_tool_problems(principal: Annotated[Principal, caller]) -> list[JsonObject]:
        """List problems of whole servers, and of tools that could not be offered.

        Principals other than the owner see only which of their servers are unavailable.
        """
        principal = await crib.placed(principal)
        missing = await crib.upstreams.missing(cwd_of(crib, principal))
        if not principal.is_owner:
            known = [each for each in missing if crib.gate.may_know(principal, each.entry.alias)]
            return [_unavailable(each).to_json() for each in known]
        unknown = [each.problem() for each in missing]
        return [problem.to_json() for problem in (*crib.catalog.at(principal.cwd).problems, *unknown)]

    @router.get("/{server}/{tool:path}", response_model=ToolShape, response_model_exclude_unset=True)
    async def show_tool(principal: Annotated[Principal, caller], server: str, tool: str) -> JsonObject:
        """Return one tool that the principal sees."""
        principal = await crib.placed(principal)
        await crib.ready(principal, server, tool)
        ref = ToolRef(server, tool)
        try:
            return _both_shapes(crib, principal, crib.gate.find(principal, ref))
        except NotFound as error:
            raise await crib.gate.why_absent(principal, ref, error) from None

    _add_search(router, crib)
    _add_cost(router, crib)
    add_hiding(router, crib)
    add_shortening(router, crib)
    _add_call(router, crib)
    return router


def _add_search(router: Resource, crib: Crib) -> None:
    caller = Depends(viewer_of(crib))

    @router.get("/search", response_model=FoundToolsShape, response_model_exclude_unset=True)
    async def search_tools(
        principal: Annotated[Principal, caller],
        q: Annotated[str, Query(min_length=1, description="A sentence, words or the name of a tool.")],
        limit: Annotated[int, Query(ge=1, le=1_000, description="The most matches.")] = 10,
    ) -> JsonObject:
        """Find tools for a task, best match first. If nothing matches, `hint` names the servers and how to ask."""
        principal = await crib.placed(principal)
        found = await crib.gate.search.find(crib.gate.listing(principal), q, limit)
        shape: JsonObject = {"tools": [_match(crib, principal, each) for each in found]}
        return shape if found else shape | {"hint": miss(q, crib.gate.servers(principal))}


def _add_cost(router: Resource, crib: Crib) -> None:
    caller = Depends(viewer_of(crib))

    @router.get("/cost", response_model=CostShape, response_model_exclude_unset=True)
    async def list_tool_costs(principal: Annotated[Principal, caller]) -> JsonObject:
        """Return the estimated tokens of the tools that the principal sees, beside their calls in the last 30 days.

        The owner sees the calls of all callers, or those of the agent that is asked for; others see their own.
        """
        principal = await crib.placed(principal)
        return (await tool_costs(crib, principal)).to_json()


def _add_call(router: Resource, crib: Crib) -> None:
    caller = Depends(principal_of(crib.principals))

    @router.post("/{server}/{tool:path}/call", response_model=CallAnswer, response_model_exclude_unset=True)
    async def call_tool(
        request: Request, principal: Annotated[Principal, caller], server: str, tool: str, body: CallRequest
    ) -> JsonObject:
        """Call a tool through the gate. The call ends when it is done, on timeout or when the client disconnects."""

        async def call() -> CallOutcome:
            asking = await crib.placed(principal)
            await crib.ready(asking, server, tool)
            trace = trace_of(dict(request.headers.raw))
            door = door_of(request, asking)
            return await crib.gate.call(asking, ToolRef(server, tool), body.arguments, door=door, trace=trace)

        called = await while_connected(request.receive, call)
        answer = called.result.to_json()
        shape = {key: answer[key] for key in ("isError", "content", "structuredContent") if key in answer}
        return shape | {"durationMs": called.duration_ms, "auditId": called.audit_id}


def _unavailable(status: ServerStatus) -> Problem:
    """Return a problem for an unavailable server that reveals nothing of its configuration or output."""
    problem = status.problem()
    return Problem(problem.code, f'Server "{status.entry.alias}" is not available.', "Ask the owner of this crib.")


def _match(crib: Crib, principal: Principal, found: "FoundTool", form: Form = "endpoint") -> JsonObject:
    tool = found.tool
    about: JsonObject = {"purpose": purpose(tool), "signature": signature(tool), "score": round(found.score, 2)}
    return _shape(crib, principal, tool, form) | about


def _both_shapes(crib: Crib, principal: Principal, tool: Tool) -> JsonObject:
    """Return a tool as defined, and as listed if that is shorter."""
    listed = shortened_form(crib, principal, tool)
    return _shape(crib, principal, tool) | ({"listed": listed} if listed is not None else {})


def _shape(crib: Crib, principal: Principal, tool: Tool, form: Form = "endpoint") -> JsonObject:
    shape: JsonObject = {
        "ref": str(tool.ref),
        "server": tool.ref.server,
        "name": tool.ref.tool,
        "exposedName": crib.gate.name(form, tool.ref),
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "marks": tool.marks.to_json(),
        "problems": [each.to_json() for each in tool.problems if principal.is_owner or each.code not in ABOUT_OTHERS],
    }
    return shape if tool.title is None else shape | {"title": tool.title}


class HideRequest(Shape):
    """A request to hide unused tools from an agent, a source, or an agent at a source."""

    agent: str | None = Field(None, min_length=1, max_length=200)
    source: Source | None = None
    server: str | None = Field(None, description="Only tools of this server.", min_length=1, max_length=200)
    undo: bool = Field(False, description="Remove the rules again; without agent and source, those of all callers.")
    dry_run: bool = False


class HiddenToolsShape(Shape):
    """The tools that were hidden or shown again, each by one deny rule."""

    reason: str = Field(description="The common reason of the rules.")
    patterns: list[str] = Field(description="The patterns of the rules, one for each tool.")
    rules: list[str] = Field(description="The ids of the rules that were added or removed; empty in a dry run.")
    saves: int = Field(description="Estimated tokens that hiding saves; 0 with `undo`.")
    dry_run: bool


def add_hiding(router: Resource, crib: Crib) -> None:
    """Add the route."""
    changes = Depends(owner_changes(crib))

    @router.post("/cost/hide", response_model=HiddenToolsShape)
    async def hide_unused_tools(change: Annotated[Changing, changes], body: HideRequest) -> JsonObject:
        """Hide tools that were not called in 30 days with deny rules, or remove these rules with `undo`."""
        scope = HidingScope(body.agent, body.source, body.server)
        shape: JsonObject = {"reason": HIDDEN, "rules": [], "saves": 0, "dryRun": body.dry_run}
        if body.undo:
            rules = hiding_rules(crib, scope)
            patterns = [rule.pattern for rule in rules]
            if rules and not body.dry_run:
                details = {**scope.to_json(), "patterns": patterns}
                await change.make("tools.unhide", details, lambda: show_again(crib, rules))
                shape["rules"] = [rule.id for rule in rules]
            return shape | {"patterns": patterns}
        tools = await unused_tools(crib, scope, change.principal.cwd)
        patterns = [str(each.ref) for each in tools]
        if tools and not body.dry_run:
            details = {**scope.to_json(), "tools": patterns}
            by = change.principal.name
            made = await change.make("tools.hide", details, lambda: hide(crib, tools, scope, by=by))
            shape["rules"], patterns = [rule.id for rule in made], [rule.pattern for rule in made]
        return shape | {"patterns": patterns, "saves": sum(each.tokens for each in tools)}


class ShortenRequest(Shape):
    """A request to list tools with shorter descriptions."""

    names: list[str] = Field([], description="Servers and tools (`server/tool`); without any, all.", max_length=10_000)
    undo: bool = Field(False, description="List them whole again.")
    dry_run: bool = False


class ShortenedToolShape(ListedShape):
    """A tool as clients list it, and the estimated tokens that this saves."""

    ref: str
    saves: int


class ShortenedToolsShape(Shape):
    """The tools that were shortened; with `undo`, `whole` names those that are listed whole again."""

    tools: list[ShortenedToolShape]
    whole: list[str]
    saves: int
    dry_run: bool


def add_shortening(router: Resource, crib: Crib) -> None:
    """Add the route."""
    changes = Depends(owner_changes(crib))

    @router.post("/cost/shorten", response_model=ShortenedToolsShape)
    async def shorten_tools(change: Annotated[Changing, changes], body: ShortenRequest) -> JsonObject:
        """List tools without text that their server's descriptions repeat, or whole again with `undo`."""
        shape: JsonObject = {"tools": [], "whole": [], "saves": 0, "dryRun": body.dry_run}
        if body.undo:
            refs = shortened(crib, body.names)
            names = [str(ref) for ref in refs]
            if refs and not body.dry_run:
                await change.make("tools.unshorten", {"tools": names}, lambda: crib.gate.shortened.remove(refs))
            return shape | {"whole": names}
        found = await shortenable(crib, body.names, change.principal.cwd)
        names = [str(tool.ref) for tool, _ in found]
        if found and not body.dry_run:
            tools = [tool for tool, _ in found]
            await change.make("tools.shorten", {"tools": names}, lambda: crib.gate.shortened.add(tools))
        return shape | {"tools": [each for _, each in found], "saves": sum(each["saves"] for _, each in found)}
