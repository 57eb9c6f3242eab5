"""The skills of an agent: switched, written, picked from the library, removed."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.console.forms import Fields, read
from toolcrib.console.portraits import picture
from toolcrib.console.respond import Console, Shown, back, route
from toolcrib.console.screens.agent_sheet import author, base
from toolcrib.errors import NotFound
from toolcrib.model.agents import Agent, Skill, SkillCategory
from toolcrib.model.json import JsonObject
from toolcrib.zoo import KeptAgent, parse
from toolcrib.zoo.compile import estimate
from toolcrib.zoo.input import AgentChanges, SkillChanges, SkillInput
from toolcrib.zoo.library import CATEGORIES, LIBRARY

_NO_SKILL = Skill("", "", "")


def routes(console: Console) -> list[Route]:
    """Pages of skills and what is done to them; the list itself is part of the sheet."""
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
    """Skills of one agent."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._zoo = console.crib.zoo

    async def fresh(self, request: Request) -> Response:
        """A skill to be written, and those that can be picked."""
        return await self._page(request, None)

    async def show(self, request: Request) -> Response:
        """One skill to be changed."""
        return await self._page(request, request.path_params["skill"])

    async def switch(self, request: Request) -> Response:
        """On or off; on switches on what it requires too."""
        form = await read(request)
        change = parse(SkillChanges, {"enabled": form.has("enabled")})
        await self._changed(request, change)
        return self._after(request)

    async def change(self, request: Request) -> Response:
        """Save the text of a skill and what belongs to it."""
        await self._changed(request, parse(SkillChanges, _given(await read(request))))
        return back(self._sheet(request))

    async def add(self, request: Request) -> Response:
        """One more skill, as it was written."""
        given = parse(SkillInput, _given(await read(request)))
        await self._zoo.add_skill(request.path_params["id"], given, by=author(self._console.principal(request)))
        return back(self._sheet(request))

    async def pick(self, request: Request) -> Response:
        """One more skill, out of the library, with its category."""
        form = await read(request)
        skill = next((each for each in LIBRARY if each.id == form.text("pick")), None)
        if skill is None:
            raise NotFound("agent.skill_unknown", f"The library has no skill {form.text('pick')!r}.")
        kept = await self._zoo.get(request.path_params["id"])
        await self._replace(request, kept, _with_library(kept.agent, skill))
        return back(self._sheet(request))

    async def remove(self, request: Request) -> Response:
        """Take a skill away; the history has it still."""
        kept = await self._zoo.get(request.path_params["id"])
        skill = _found(kept.agent, request.path_params["skill"])
        rest = [each.to_json() for each in kept.agent.skills if each.id != skill.id]
        await self._replace(request, kept, {"skills": rest})
        return back(self._sheet(request))

    async def _page(self, request: Request, skill_id: str | None) -> Response:
        kept, compiled = await self._zoo.compiled(request.path_params["id"])
        skill = _NO_SKILL if skill_id is None else _found(kept.agent, skill_id)
        here = {each.id for each in kept.agent.skills}
        absent: JsonObject = {"tools": [], "requires": []}
        value = base(kept, compiled) | {
            "skill": absent | skill.to_json(),
            "isNew": skill_id is None,
            "categories": [each.to_json() for each in kept.agent.skill_categories],
            "library": _library(here) if skill_id is None else [],
        }
        title = skill.name or f"A skill for {kept.agent.name}"
        shown = Shown("agents", title, "agent_skill.html", value, also={"picture": picture})
        return await self._console.respond(request, shown)

    async def _changed(self, request: Request, change: SkillChanges) -> None:
        agent_id, skill_id = request.path_params["id"], request.path_params["skill"]
        await self._zoo.change_skill(agent_id, skill_id, change, by=author(self._console.principal(request)))

    async def _replace(self, request: Request, kept: KeptAgent, given: JsonObject) -> None:
        by = author(self._console.principal(request))
        await self._zoo.update(kept.agent.id, parse(AgentChanges, given), version=kept.version, by=by)

    def _sheet(self, request: Request) -> str:
        return f"/agents/{request.path_params['id']}"

    def _after(self, request: Request) -> Response:
        """A page with a script gets the list of skills, one without the whole sheet."""
        by_script = request.headers.get("hx-request") == "true"
        return back(f"{self._sheet(request)}?part=skills" if by_script else self._sheet(request))


def _given(form: Fields) -> JsonObject:
    given: JsonObject = {
        "name": form.text("name"),
        "description": form.text("description"),
        "tools": form.lines("tools"),
        "requires": form.words("requires"),
    }
    category = form.line("categoryId")
    return given if category is None else {**given, "categoryId": category}


def _found(agent: Agent, skill_id: str) -> Skill:
    skill = next((each for each in agent.skills if each.id == skill_id), None)
    if skill is None:
        raise NotFound("agent.skill_unknown", f"Agent '{agent.id}' has no skill '{skill_id}'.")
    return skill


def _with_library(agent: Agent, skill: Skill) -> JsonObject:
    """The agent's skills with this one, what it requires, and the categories they are in."""
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
