"""Builds agents from input and validates rules that span several fields; pure.

Must never fix a person's input by dropping parts of it: every invalid field is reported with its location.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from toolcrib.base.lazy_modules import lazy_module
from toolcrib.model.agents import GENERAL, Agent, Skill, slug
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import Json, JsonObject, canonical

if TYPE_CHECKING:
    from toolcrib.agents.zoo import input as agent_input
    from toolcrib.agents.zoo.input import AgentChanges, AgentInput, SkillInput
else:
    agent_input = lazy_module("toolcrib.agents.zoo.input")

LARGEST = 1024 * 1024
"""Bytes of a whole agent as JSON."""
_LISTED = 20

Model = TypeVar("Model", bound=BaseModel)
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """An invalid field: its location and the reason."""

    path: Path
    message: str

    def __str__(self) -> str:
        place = ".".join(map(str, self.path))
        return f"{place}: {self.message}" if place else self.message


class InvalidFields(InvalidRequest):
    """Raised for invalid fields; lists each with its location."""

    def __init__(self, fields: Sequence[FieldProblem]) -> None:
        self.fields = tuple(fields[:_LISTED])
        more = f"; and {len(fields) - _LISTED} more" if len(fields) > _LISTED else ""
        super().__init__("agent.invalid", "; ".join(map(str, self.fields)) + more)


def parse(model: type[Model], value: Json) -> Model:
    """Validate JSON against a model; raises `InvalidFields`."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False, include_input=False)
        raise InvalidFields([FieldProblem(each["loc"], each["msg"]) for each in details]) from None


def new_agent(given: "AgentInput", agent_id: str) -> Agent:
    """Return a new agent with this id; raises `InvalidFields`."""
    ids = [entry.id or f"{position} without id" for position, entry in enumerate(given.brain_entries)]
    if wrong := list(_find_repeated("brainEntries", ids)):
        raise InvalidFields(wrong)
    return _fill_in(Agent(agent_id, given.name).to_json() | agent_input.named(given, agent_input.READ_ONLY | {"id"}))


def changed_agent(agent: Agent, given: "AgentChanges") -> Agent:
    """Return the agent with only the named fields changed; raises `InvalidFields`."""
    if given.id not in (None, agent.id):
        raise InvalidFields([FieldProblem(("id",), "cannot be changed; clone the agent instead")])
    return _fill_in(agent.to_json() | agent_input.named(given, agent_input.READ_ONLY | {"id"}))


def with_skill(agent: Agent, position: int, changes: Mapping[str, Json]) -> Agent:
    """Return the agent with one skill changed; enabling a skill enables its requirements. Raises `InvalidFields`."""
    shape = agent.to_json()
    skills: list[JsonObject] = shape["skills"]
    skills[position] |= changes
    if changes.get("enabled") is True:
        for skill_id in _needed_by(skills, skills[position]["id"]):
            skills[skill_id]["enabled"] = True
    return _fill_in(shape)


def with_new_skill(agent: Agent, given: "SkillInput") -> Agent:
    """Return the agent with an added skill, whose id is made unique; raises `InvalidFields`."""
    shape = agent.to_json()
    taken = {skill.id for skill in agent.skills}
    wanted = given.id or slug(given.name, fallback="skill")
    shape["skills"].append(given.model_dump(by_alias=True) | {"id": free_id(wanted, taken)})
    return _fill_in(shape)


def free_id(wanted: str, taken: Container[str]) -> str:
    """Return this id, with a number appended if it is taken."""
    number, free = 2, wanted
    while free in taken:
        free = f"{wanted[:45]}-{number}"
        number += 1
    return free


def _fill_in(shape: JsonObject) -> Agent:
    """Return the agent of this shape with missing ids and categories filled in."""
    _fill_ids(shape["skillCategories"], "category")
    _fill_ids(shape["skills"], "skill")
    categories = [each["id"] for each in shape["skillCategories"]]
    for skill in shape["skills"]:
        if skill.get("categoryId") is None:
            if not categories:
                shape["skillCategories"].append(GENERAL.to_json())
                categories.append(GENERAL.id)
            skill["categoryId"] = GENERAL.id if GENERAL.id in categories else categories[0]
    agent = Agent.of_json(shape)
    if wrong := list(_problems(agent)):
        raise InvalidFields(wrong)
    return agent


def _fill_ids(parts: list[JsonObject], fallback: str) -> None:
    taken = {part["id"] for part in parts if part.get("id")}
    for part in parts:
        if not part.get("id"):
            part["id"] = free_id(slug(part["name"], fallback=fallback), taken)
            taken.add(part["id"])


def _problems(agent: Agent) -> Iterator[FieldProblem]:
    yield from _find_repeated("skillCategories", [category.id for category in agent.skill_categories])
    yield from _find_repeated("skills", [skill.id for skill in agent.skills])
    known = {category.id for category in agent.skill_categories}
    for position, skill in enumerate(agent.skills):
        if skill.category_id not in known:
            message = f"there is no category {skill.category_id!r} in skillCategories"
            yield FieldProblem(("skills", position, "categoryId"), message)
    yield from _unmet(agent.skills)
    if cycle := _cycle(agent.skills):
        position = next(at for at, skill in enumerate(agent.skills) if skill.id == cycle[0])
        yield FieldProblem(("skills", position, "requires"), f"has a cycle: {' → '.join(cycle)}")
    size = len(canonical(agent.to_json()))
    if size > LARGEST:
        yield FieldProblem((), f"the agent has {size:,} bytes, more than {LARGEST:,}")


def _find_repeated(name: str, ids: Sequence[str]) -> Iterator[FieldProblem]:
    twice = {each for each, count in Counter(ids).items() if count > 1}
    for position, each in enumerate(ids):
        if each in twice and each in ids[:position]:
            yield FieldProblem((name, position, "id"), f"{each!r} is already the id of {name}.{ids.index(each)}")


def _unmet(skills: Sequence[Skill]) -> Iterator[FieldProblem]:
    by_id = {skill.id: skill for skill in skills}
    for position, skill in enumerate(skills):
        for needed in skill.requires:
            path: Path = ("skills", position, "requires")
            if needed not in by_id:
                yield FieldProblem(path, f"there is no skill {needed!r}")
            elif skill.enabled and not by_id[needed].enabled:
                yield FieldProblem(path, f"skill {skill.id!r} is on and needs {needed!r}, which is off")


def _cycle(skills: Iterable[Skill]) -> list[str]:
    """Return a cycle of skills that require each other, with the first repeated at the end; empty if there is none."""
    by_id = {skill.id: skill for skill in skills}
    done: set[str] = set()
    for start in by_id:
        trail: list[str] = []
        stack = [(start, iter(by_id[start].requires))]
        trail.append(start)
        while stack:
            needed = next((each for each in stack[-1][1] if each in by_id and each not in done), None)
            if needed is None:
                done.add(stack.pop()[0])
                trail.pop()
            elif needed in trail:
                return [*trail[trail.index(needed) :], needed]
            else:
                stack.append((needed, iter(by_id[needed].requires)))
                trail.append(needed)
    return []


def _needed_by(skills: Sequence[JsonObject], skill_id: str) -> set[int]:
    """Return the positions of all skills that this one requires, transitively."""
    places = {skill["id"]: position for position, skill in enumerate(skills)}
    found: set[int] = set()
    waiting = [skill_id]
    while waiting:
        for needed in skills[places[waiting.pop()]].get("requires", ()):
            if needed in places and places[needed] not in found:
                found.add(places[needed])
                waiting.append(needed)
    return found
