"""The skills of an agent: switch, edit, pick from the library, remove."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.agents.zoo.check import parse
from toolcrib.agents.zoo.input import AgentChanges, SkillChanges, SkillInput
from toolcrib.agents.zoo.library import CATEGORIES, LIBRARY
from toolcrib.agents.zoo.zoo import StoredAgent
from toolcrib.model.agents import Agent, Skill, SkillCategory
from toolcrib.model.errors import NotFound
from toolcrib.model.json import JsonObject
from toolcrib.model.token_estimate import estimate
from toolcrib.web.console.forms import FormFields, read
from toolcrib.web.console.portraits import picture
from toolcrib.web.console.responses import Console, ScreenContent, back, route
from toolcrib.web.console.screens.agents.sheet import author, base

_NO_SKILL = Skill("", "", "")


def routes(console: Console) -> list[Route]:
    """Return the routes of single skills; the list is part of the sheet."""
    screen = SkillsScreen(console)
    return [
        route("/agents/{id}/skills/-/new", screen.fresh),
        route("/agents/{id}/skills/-/new", screen.add, "POST"),
        route("/agents/{id}/skills/-/pick", screen.pick, "POST"),
        route("/agents/{id}/skills/{skill}", screen.show),
        route("/agents/{id}/skills/{skill}", screen.change, "POST"),
        route("/agents/{id}/skills/{skill}/switch", screen.switch, "POST"),
        route("/agents/{id}/skills/{skill}/remove", screen.remove, "POST"),
    ]


class SkillsScreen:
    """The skills of one agent."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._zoo = console.crib.zoo

    async def fresh(self, request: Request) -> Response:
        """Show a form for a new skill, and the library."""
        return await self._page(request, None)

    async def show(self, request: Request) -> Response:
        """Show one skill for editing."""
        return await self._page(request, request.path_params["skill"])

    async def switch(self, request: Request) -> Response:
        """Switch a skill on or off; switching on includes the skills it requires."""
        form = await read(request)
        change = parse(SkillChanges, {"enabled": form.has("enabled")})
        await self._change(request, change)
        return self._after(request)

    async def change(self, request: Request) -> Response:
        """Save a skill."""
        await self._change(request, parse(SkillChanges, _read_form(await read(request))))
        return back(self._sheet(request))

    async def add(self, request: Request) -> Response:
        """Add a new skill."""
        given = parse(SkillInput, _read_form(await read(request)))
        await self._zoo.add_skill(request.path_params["id"], given, by=author(self._console.principal(request)))
        return back(self._sheet(request))

    async def pick(self, request: Request) -> Response:
        """Add a skill from the library, with its category."""
        form = await read(request)
        skill = next((each for each in LIBRARY if each.id == form.text("pick")), None)
        if skill is None:
            raise NotFound("agent.skill_unknown", f"The library has no skill {form.text('pick')!r}.")
        stored = await self._zoo.get(request.path_params["id"])
        await self._replace(request, stored, _with_library(stored.agent, skill))
        return back(self._sheet(request))

    async def remove(self, request: Request) -> Response:
        """Remove a skill; the history keeps it."""
        stored = await self._zoo.get(request.path_params["id"])
        skill = _find(stored.agent, request.path_params["skill"])
        rest = [each.to_json() for each in stored.agent.skills if each.id != skill.id]
        await self._replace(request, stored, {"skills": rest})
        return back(self._sheet(request))

    async def _page(self, request: Request, skill_id: str | None) -> Response:
        stored, compiled = await self._zoo.compiled(request.path_params["id"])
        skill = _NO_SKILL if skill_id is None else _find(stored.agent, skill_id)
        here = {each.id for each in stored.agent.skills}
        absent: JsonObject = {"tools": [], "requires": []}
        value = base(stored, compiled) | {
            "skill": absent | skill.to_json(),
            "isNew": skill_id is None,
            "categories": [each.to_json() for each in stored.agent.skill_categories],
            "library": _library(here) if skill_id is None else [],
        }
        title = skill.name or f"New skill for {stored.agent.name}"
        shown = ScreenContent("agents", title, "agent_skill.html", value, also={"picture": picture})
        return await self._console.respond(request, shown)

    async def _change(self, request: Request, change: SkillChanges) -> None:
        agent_id, skill_id = request.path_params["id"], request.path_params["skill"]
        await self._zoo.change_skill(agent_id, skill_id, change, by=author(self._console.principal(request)))

    async def _replace(self, request: Request, stored: StoredAgent, given: JsonObject) -> None:
        by = author(self._console.principal(request))
        await self._zoo.update(stored.agent.id, parse(AgentChanges, given), version=stored.version, by=by)

    def _sheet(self, request: Request) -> str:
        return f"/agents/{request.path_params['id']}"

    def _after(self, request: Request) -> Response:
        """Redirect to the list of skills for htmx, else to the whole sheet."""
        by_script = request.headers.get("hx-request") == "true"
        return back(f"{self._sheet(request)}?part=skills" if by_script else self._sheet(request))


def _read_form(form: FormFields) -> JsonObject:
    given: JsonObject = {
        "name": form.text("name"),
        "description": form.text("description"),
        "tools": form.lines("tools"),
        "requires": form.words("requires"),
    }
    category = form.line("categoryId")
    return given if category is None else {**given, "categoryId": category}


def _find(agent: Agent, skill_id: str) -> Skill:
    skill = next((each for each in agent.skills if each.id == skill_id), None)
    if skill is None:
        raise NotFound("agent.skill_unknown", f"Agent '{agent.id}' has no skill '{skill_id}'.")
    return skill


def _with_library(agent: Agent, skill: Skill) -> JsonObject:
    """Return the agent's skills plus this one, the skills it requires, and their categories."""
    here = {each.id for each in agent.skills}
    more = [each for each in LIBRARY if each.id in (skill.id, *skill.requires) and each.id not in here]
    categories = [*agent.skill_categories, *_missing(agent.skill_categories, more)]
    return {
        "skills": [each.to_json() for each in (*agent.skills, *more)],
        "skillCategories": [each.to_json() for each in categories],
    }


def _missing(there: Sequence[SkillCategory], skills: Sequence[Skill]) -> list[SkillCategory]:
    ids = {each.id for each in there}
    return [each for each in CATEGORIES if each.id not in ids and each.id in {skill.category_id for skill in skills}]


def _library(here: set[str]) -> list[JsonObject]:
    names = {each.id: each.name for each in CATEGORIES}
    return [
        {
            "id": skill.id,
            "name": skill.name,
            "description": skill.description,
            "category": names[skill.category_id],
            "tokens": estimate(skill.description),
        }
        for skill in LIBRARY
        if skill.id not in here
    ]
