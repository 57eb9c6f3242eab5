"""Agents: all agents as cards, create and import. The modules next to this one show a single agent."""

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.agents.zoo.check import parse
from toolcrib.agents.zoo.importing import take
from toolcrib.agents.zoo.input import AgentChanges, AgentInput
from toolcrib.agents.zoo.starters import STARTERS
from toolcrib.model.agents import AgentSummary
from toolcrib.model.errors import NotFound
from toolcrib.model.json import Json, JsonObject
from toolcrib.web.console.forms import read, read_query
from toolcrib.web.console.portraits import picture
from toolcrib.web.console.responses import Console, ScreenContent, back, route
from toolcrib.web.console.screens.agents import (
    brain as agent_brain,
)
from toolcrib.web.console.screens.agents import (
    categories as agent_categories,
)
from toolcrib.web.console.screens.agents import (
    history as agent_history,
)
from toolcrib.web.console.screens.agents import (
    sheet as agent_sheet,
)
from toolcrib.web.console.screens.agents import (
    skills as agent_skills,
)
from toolcrib.web.console.screens.agents import (
    tools as agent_tools,
)
from toolcrib.web.console.screens.agents.sheet import author, seed_of

_SHOWN: Final = 60
"""Cards per page."""
_PASTED: Final = "pasted.md"


def routes(console: Console) -> list[Route]:
    """Return the routes of all agent screens."""
    screen = AgentsScreen(console)
    parts = (agent_sheet, agent_categories, agent_skills, agent_tools, agent_brain, agent_history)
    return [
        route("/agents", screen.show),
        route("/agents", screen.create, "POST"),
        route("/agents/-/import", screen.import_page),
        route("/agents/-/import", screen.take, "POST"),
        *(each for part in parts for each in part.routes(console)),
    ]


class AgentsScreen:
    """Lists, creates and imports agents."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._zoo = console.crib.zoo

    async def show(self, request: Request) -> Response:
        """List the agents whose name, id or description contains all `words`."""
        query = read_query(request)
        words = query.text("words").lower().split()
        every = await self._zoo.list()
        fitting = [each for each in every if all(word in _search_text(each) for word in words)]
        value: JsonObject = {
            "agents": [await self._card(each) for each in fitting[:_SHOWN]],
            "fitting": len(fitting),
            "total": len(every),
            "words": " ".join(words),
            "templates": _templates(every),
            "undo": await self._undo_of(query.line("deleted")),
        }
        shown = ScreenContent("agents", "Agents", "agents.html", value, "parts/agent_cards.html", {"picture": picture})
        return await self._console.respond(request, shown)

    async def create(self, request: Request) -> Response:
        """Create an agent, optionally from a template, and open it."""
        form = await read(request)
        by = author(self._console.principal(request))
        given: JsonObject = {"name": form.text("name")}
        if template := form.line("template"):
            stored = await self._zoo.clone(template, parse(AgentChanges, given), by=by)
        else:
            stored = await self._zoo.create(parse(AgentInput, given), by=by)
        return back(f"/agents/{stored.agent.id}")

    async def import_page(self, request: Request) -> Response:
        """Show the import form."""
        return await self._import_page(request, None)

    async def take(self, request: Request) -> Response:
        """Import the pasted or uploaded files; with `look`, only preview."""
        form = await read(request)
        files = await form.files("files")
        if text := form.text("text").strip():
            files.append((form.line("name") or _PASTED, text))
        by = author(self._console.principal(request))
        done = await take(self._zoo, files, into=form.line("into"), dry_run=form.has("look"), by=by)
        return await self._import_page(request, done.to_json())

    async def _import_page(self, request: Request, done: JsonObject | None) -> Response:
        agents: list[Json] = [{"id": each.id, "name": each.name} for each in await self._zoo.list()]
        value: JsonObject = {"agents": agents, "done": done}
        shown = ScreenContent("agents", "Import agents", "agent_import.html", value)
        return await self._console.respond(request, shown)

    async def _card(self, summary: AgentSummary) -> JsonObject:
        agent = (await self._zoo.get(summary.id)).agent
        permissions = agent.tool_permissions
        return summary.to_json() | {
            "seed": seed_of(agent),
            "skills": len(agent.skills),
            "skillsOn": len(agent.enabled_skills),
            "toolPermissions": None if permissions is None else list(permissions),
            "mode": agent.mode,
        }

    async def _undo_of(self, agent_id: str | None) -> JsonObject | None:
        """Return what is needed to restore an agent that was just deleted."""
        if agent_id is None:
            return None
        try:
            newest, *older = await self._zoo.revisions(agent_id)
        except NotFound:
            return None
        before = older[0] if older else None
        if newest.kind != "deleted" or before is None or before.agent is None:
            return None
        return {"id": agent_id, "name": before.agent.name, "version": before.version}


def _search_text(agent: AgentSummary) -> str:
    return f"{agent.id} {agent.name} {agent.description}".lower()


def _templates(agents: Sequence[AgentSummary]) -> list[JsonObject]:
    """Return the templates for a new agent: existing agents, and deleted starters."""
    there = {each.id: each.name for each in agents}
    starters = {each.id: each.name for each in STARTERS}
    return [{"id": id, "name": name} for id, name in (starters | there).items()]
