"""Agents: the zoo as cards, and the ways into it. The sheet of one agent is in the modules beside this one."""

from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.console.forms import asked, read
from toolcrib.console.portraits import picture
from toolcrib.console.respond import Console, Shown, back, route
from toolcrib.console.screens import agent_brain, agent_history, agent_sheet, agent_skills, agent_tools
from toolcrib.console.screens.agent_sheet import author, seed_of
from toolcrib.errors import NotFound
from toolcrib.model.agents import AgentSummary
from toolcrib.model.json import Json, JsonObject
from toolcrib.zoo import parse
from toolcrib.zoo.input import AgentChanges, AgentInput
from toolcrib.zoo.starters import STARTERS
from toolcrib.zoo.taking import take

_SHOWN: Final = 60
"""Cards on one page."""
_PASTED: Final = "pasted.md"


def routes(console: Console) -> list[Route]:
    """The zoo, and every part of an agent's sheet."""
    screen = AgentsScreen(console)
    parts = (agent_sheet, agent_skills, agent_tools, agent_brain, agent_history)
    return [
        route("/agents", screen.show),
        route("/agents", screen.create, "POST"),
        route("/agents/-/import", screen.import_page),
        route("/agents/-/import", screen.take, "POST"),
        *(each for part in parts for each in part.routes(console)),
    ]


class AgentsScreen:
    """All agents."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._zoo = console.crib.zoo

    async def show(self, request: Request) -> Response:
        """The cards; `words` leaves those whose name, id or description has all of them."""
        query = asked(request)
        words = query.text("words").lower().split()
        every = await self._zoo.list()
        fitting = [each for each in every if all(word in _searched(each) for word in words)]
        value: JsonObject = {
            "agents": [await self._card(each) for each in fitting[:_SHOWN]],
            "fitting": len(fitting),
            "total": len(every),
            "words": " ".join(words),
            "templates": _templates(every),
            "undo": await self._deleted(query.line("deleted")),
        }
        shown = Shown("agents", "Agents", "agents.html", value, "parts/agent_cards.html", {"picture": picture})
        return await self._console.respond(request, shown)

    async def create(self, request: Request) -> Response:
        """Make an agent, perhaps like another one, and go to its sheet."""
        form = await read(request)
        by = author(self._console.principal(request))
        given: JsonObject = {"name": form.text("name")}
        if template := form.line("template"):
            kept = await self._zoo.clone(template, parse(AgentChanges, given), by=by)
        else:
            kept = await self._zoo.create(parse(AgentInput, given), by=by)
        return back(f"/agents/{kept.agent.id}")

    async def import_page(self, request: Request) -> Response:
        """Where agents of other tools are taken in."""
        return await self._imported(request, None)

    async def take(self, request: Request) -> Response:
        """Take what was pasted or chosen; with `look`, only say what would be taken."""
        form = await read(request)
        files = await form.files("files")
        if text := form.text("text").strip():
            files.append((form.line("name") or _PASTED, text))
        by = author(self._console.principal(request))
        done = await take(self._zoo, files, into=form.line("into"), dry_run=form.has("look"), by=by)
        return await self._imported(request, done.to_json())

    async def _imported(self, request: Request, done: JsonObject | None) -> Response:
        agents: list[Json] = [{"id": each.id, "name": each.name} for each in await self._zoo.list()]
        value: JsonObject = {"agents": agents, "done": done}
        shown = Shown("agents", "Import agents", "agent_import.html", value)
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

    async def _deleted(self, agent_id: str | None) -> JsonObject | None:
        """What brings an agent back that was just deleted."""
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


def _searched(agent: AgentSummary) -> str:
    return f"{agent.id} {agent.name} {agent.description}".lower()


def _templates(agents: Sequence[AgentSummary]) -> list[JsonObject]:
    """What a new agent can begin as: the agents there are, and the starters that were deleted."""
    there = {each.id: each.name for each in agents}
    starters = {each.id: each.name for each in STARTERS}
    return [{"id": id, "name": name} for id, name in (starters | there).items()]
