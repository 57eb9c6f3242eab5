"""`/api/tools`: the catalog as a principal sees it, and a call through the gate."""

from typing import Annotated, Literal

import orjson
from fastapi import Depends, Query, Request, Response

from toolcrib.catalog.naming import Form
from toolcrib.catalog.search import search
from toolcrib.gate import Called
from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.tools import Tool, ToolRef
from toolcrib.server.api.reading import StrictRoute, asker, cwd_of, door_of, while_connected
from toolcrib.server.api.resource import Resource
from toolcrib.server.api.shapes import CallAnswer, CallRequest, ProblemShape, ToolShape

ToolForm = Literal["claude", "endpoint", "bridge"]


def routes(crib: Crib) -> Resource:
    """The routes, on this crib."""
    router = Resource("tools", StrictRoute)
    who = Depends(asker(crib.principals))

    @router.get("", response_model=list[ToolShape], response_model_exclude_unset=True)
    async def list_tools(
        principal: Annotated[Principal, who],
        server: Annotated[str | None, Query(description="Only this server's.")] = None,
        q: Annotated[str | None, Query(description="Only those with all these words, best first.")] = None,
        form: Annotated[ToolForm, Query(description="Where the exposed names are for.")] = "endpoint",
    ) -> Response:
        """The tools that the asker sees, in order of their identity, or best first with `q`."""
        principal = await crib.placed(principal)
        if server is not None:
            await crib.ready(principal, server)
        tools = [tool for tool in crib.gate.listing(principal).tools if server in (None, tool.ref.server)]
        found = tools if q is None else search(tools, q)
        # Written out here, since checking thousands of tools against their model takes longer than making them.
        return Response(orjson.dumps([_shape(crib, tool, form) for tool in found]), media_type="application/json")

    @router.get("/problems", response_model=list[ProblemShape], response_model_exclude_unset=True)
    async def list_tool_problems(principal: Annotated[Principal, who]) -> list[JsonObject]:
        """What is wrong with servers as a whole, and with tools that could not be offered."""
        principal = await crib.placed(principal)
        unknown = await crib.links.unknown(cwd_of(crib, principal))
        return [problem.to_json() for problem in (*crib.catalog.at(principal.cwd).problems, *unknown)]

    @router.get("/{server}/{tool:path}", response_model=ToolShape, response_model_exclude_unset=True)
    async def show_tool(principal: Annotated[Principal, who], server: str, tool: str) -> JsonObject:
        """One tool that the asker sees."""
        principal = await crib.placed(principal)
        await crib.ready(principal, server)
        return _shape(crib, crib.gate.find(principal, ToolRef(server, tool)))

    @router.post("/{server}/{tool:path}/call", response_model=CallAnswer, response_model_exclude_unset=True)
    async def call_tool(
        request: Request, principal: Annotated[Principal, who], server: str, tool: str, body: CallRequest
    ) -> JsonObject:
        """Call a tool through the gate. It ends when it is done, at its time-out, or when the client leaves."""

        async def call() -> Called:
            asking = await crib.placed(principal)
            await crib.ready(asking, server)
            return await crib.gate.call(asking, ToolRef(server, tool), body.arguments, door=door_of(request, asking))

        called = await while_connected(request.receive, call)
        answer = called.result.to_json()
        shape = {key: answer[key] for key in ("isError", "content", "structuredContent") if key in answer}
        return shape | {"durationMs": called.duration_ms, "auditId": called.audit_id}

    return router


def _shape(crib: Crib, tool: Tool, form: Form = "endpoint") -> JsonObject:
    shape: JsonObject = {
        "ref": str(tool.ref),
        "server": tool.ref.server,
        "name": tool.ref.tool,
        "exposedName": crib.gate.name(form, tool.ref),
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "marks": tool.marks.to_json(),
        "problems": [problem.to_json() for problem in tool.problems],
    }
    return shape if tool.title is None else shape | {"title": tool.title}
