"""The tools of an agent: what is granted, and the resulting decisions."""

from collections import Counter
from itertools import groupby
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.agents.zoo.check import parse
from toolcrib.agents.zoo.input import AgentChanges
from toolcrib.model.agents import Agent
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import SOURCES, Principal, Source
from toolcrib.model.tools import Tool
from toolcrib.web.console.forms import read, read_query
from toolcrib.web.console.paging import list_page
from toolcrib.web.console.portraits import picture
from toolcrib.web.console.responses import Console, ScreenContent, back, route
from toolcrib.web.console.screens.agents.sheet import author, base

SOURCE_WORDS: Final[dict[Source, str]] = {
    "ide": "IDE (MCP)",
    "web": "console",
    "cli": "command line",
    "api": "API",
    "scheduler": "schedule",
    "agent": "another agent",
}
KINDS: Final = {"default": "All tools except privileged ones", "list": "Only these tools", "none": "No tools"}
_ON_PAGE: Final = 200
VERDICTS: Final = {"allow": ("allowed", "good"), "ask": ("needs approval", "warn"), "deny": ("denied", "alarm")}


def routes(console: Console) -> list[Route]:
    """Return the routes of the page and its form."""
    screen = ToolsOfAgent(console)
    return [route("/agents/{id}/tools", screen.show), route("/agents/{id}/tools", screen.change, "POST")]


class ToolsOfAgent:
    """The tools that one agent may use."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._crib = console.crib

    async def show(self, request: Request) -> Response:
        """Show the grants, and every tool that is visible when called from `source`."""
        stored, compiled = await self._crib.zoo.compiled(request.path_params["id"])
        source: Source = read_query(request).choice("source", SOURCES) or "ide"
        principal = await self._crib.placed(self._crib.as_agent(stored.agent.id, source))
        tools = (*self._crib.gate.listing(principal).tools, *self._crib.gate.own_tools(principal))
        counts = Counter(tool.ref.server for tool in tools)
        shown = list_page(request, tools, _ON_PAGE)
        value = base(stored, compiled) | {
            "permissions": _permissions(stored.agent),
            "bySkills": [
                {"skill": skill.name, "tools": list(skill.tools)}
                for skill in stored.agent.enabled_skills
                if skill.tools
            ],
            "source": source,
            "total": len(tools),
            "servers": [
                {"server": server, "of": counts[server], "tools": [self._tool(principal, tool) for tool in group]}
                for server, group in groupby(shown.items, lambda tool: tool.ref.server)
            ],
            "links": shown.links,
        }
        also = {"picture": picture, "sources": SOURCE_WORDS, "kinds": KINDS, "verdicts": VERDICTS}
        screen = ScreenContent(
            "agents", f"Tools of {stored.agent.name}", "agent_tools.html", value, "parts/agent_tools.html", also
        )
        return await self._console.respond(request, screen)

    async def change(self, request: Request) -> Response:
        """Grant the default set, a list of patterns, or nothing."""
        form = await read(request)
        agent_id: str = request.path_params["id"]
        kind = form.choice("kind", tuple(KINDS)) or "default"
        given = None if kind == "default" else form.lines("patterns") if kind == "list" else []
        changes = parse(AgentChanges, {"toolPermissions": given})
        await self._crib.zoo.update(agent_id, changes, by=author(self._console.principal(request)))
        return back(f"/agents/{agent_id}/tools")

    def _tool(self, principal: Principal, tool: Tool) -> JsonObject:
        verdict = self._crib.gate.decision(principal, tool.ref).verdict
        return {"ref": str(tool.ref), "name": tool.ref.tool, "title": tool.title, "verdict": verdict}


def _permissions(agent: Agent) -> JsonObject:
    given = agent.tool_permissions
    kind = "default" if given is None else "list" if given else "none"
    return {"kind": kind, "patterns": list(given or ())}
