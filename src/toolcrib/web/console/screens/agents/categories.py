"""The categories of an agent's skills: make, rename, colour, order and delete them."""

from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.agents.zoo.check import parse
from toolcrib.agents.zoo.input import AgentChanges
from toolcrib.model.agents import Agent, SkillCategory
from toolcrib.model.errors import Conflict, NotFound
from toolcrib.model.json import JsonObject
from toolcrib.web.console.forms import FormFields, read
from toolcrib.web.console.portraits import picture
from toolcrib.web.console.responses import Console, ScreenContent, back, route
from toolcrib.web.console.screens.agents.sheet import author, base


def routes(console: Console) -> list[Route]:
    """Return the routes of the categories."""
    screen = CategoriesScreen(console)
    path = "/agents/{id}/categories"
    return [
        route(path, screen.show),
        route(path, screen.add, "POST"),
        route(f"{path}/{{category}}", screen.act, "POST"),
    ]


class CategoriesScreen:
    """The categories of one agent."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._zoo = console.crib.zoo

    async def show(self, request: Request) -> Response:
        """List the categories in order, each with its number of skills."""
        stored, compiled = await self._zoo.compiled(request.path_params["id"])
        agent = stored.agent
        value = base(stored, compiled) | {
            "categories": [
                each.to_json() | {"skills": sum(skill.category_id == each.id for skill in agent.skills)}
                for each in agent.skill_categories
            ]
        }
        title = f"Categories of {agent.name}"
        shown = ScreenContent("agents", title, "agent_categories.html", value, also={"picture": picture})
        return await self._console.respond(request, shown)

    async def add(self, request: Request) -> Response:
        """Add a category at the end."""
        form = await read(request)
        stored = await self._zoo.get(request.path_params["id"])
        made: JsonObject = {"name": form.text("name"), "color": form.text("color")}
        return await self._save(request, [*(each.to_json() for each in stored.agent.skill_categories), made])

    async def act(self, request: Request) -> Response:
        """Save, move or delete a category. The skills of a deleted one go to the first that is left."""
        form = await read(request)
        stored = await self._zoo.get(request.path_params["id"])
        agent, at = stored.agent, _position(stored.agent, request.path_params["category"])
        categories = list(agent.skill_categories)
        do = form.choice("do", ("save", "up", "down", "delete")) or "save"
        if do == "delete":
            return await self._delete(request, agent, categories.pop(at), categories)
        if do == "save":
            categories[at] = _edit(categories[at], form)
        else:
            to = min(max(at + (1 if do == "down" else -1), 0), len(categories) - 1)
            categories.insert(to, categories.pop(at))
        return await self._save(request, [each.to_json() for each in categories])

    async def _delete(self, request: Request, agent: Agent, gone: SkillCategory, left: list[SkillCategory]) -> Response:
        if not left:
            raise Conflict("agent.category_last", "An agent has at least one category.", "Add another one first.")
        skills = [
            (replace(each, category_id=left[0].id) if each.category_id == gone.id else each).to_json()
            for each in agent.skills
        ]
        return await self._save(request, [each.to_json() for each in left], {"skills": skills})

    async def _save(self, request: Request, categories: list[JsonObject], more: JsonObject | None = None) -> Response:
        agent_id: str = request.path_params["id"]
        changes = parse(AgentChanges, {"skillCategories": categories, **(more or {})})
        await self._zoo.update(agent_id, changes, by=author(self._console.principal(request)))
        return back(f"/agents/{agent_id}/categories")


def _edit(category: SkillCategory, form: FormFields) -> SkillCategory:
    return replace(category, name=form.text("name"), color=form.text("color"))


def _position(agent: Agent, category_id: str) -> int:
    for at, each in enumerate(agent.skill_categories):
        if each.id == category_id:
            return at
    raise NotFound("agent.category_unknown", f"Agent '{agent.id}' has no category '{category_id}'.")
