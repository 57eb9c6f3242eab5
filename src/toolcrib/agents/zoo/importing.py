"""Imports agents and skills from other tools' files into the zoo; a bad item does not stop the others.

Must never replace an agent: if its id is taken, the imported agent gets a new one.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import anyio.to_thread

from toolcrib.agents.zoo.check import InvalidFields, free_id, new_agent, parse, with_new_skill
from toolcrib.agents.zoo.input import AgentInput, SkillInput
from toolcrib.agents.zoo.transfer import read
from toolcrib.agents.zoo.zoo import Zoo
from toolcrib.model.errors import Conflict
from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem


@dataclass(frozen=True, slots=True)
class TakenItem:
    """An agent that was created, or that received a skill."""

    id: str
    name: str
    skill: str | None = None

    def to_json(self) -> JsonObject:
        """Return the public JSON representation."""
        return {"id": self.id, "name": self.name} | ({"skill": self.skill} if self.skill else {})


@dataclass(frozen=True, slots=True)
class Taken:
    """The imported items, or those a dry run would import, and the problems."""

    items: tuple[TakenItem, ...]
    problems: tuple[Problem, ...]
    dry_run: bool

    def to_json(self) -> JsonObject:
        """Return the public JSON representation."""
        return {
            "taken": [item.to_json() for item in self.items],
            "problems": [problem.to_json() for problem in self.problems],
            "dryRun": self.dry_run,
        }


async def take(zoo: Zoo, files: Iterable[tuple[str, str]], *, into: str | None, dry_run: bool, by: str) -> Taken:
    """Import files (name, text); skills are added to the agent `into`, or each becomes its own agent."""
    taker = _Taker(zoo, dry_run, by, {agent.id for agent in await zoo.list()})
    if into is not None:
        await zoo.get(into)
    with zoo.together():
        for file, text in files:
            found = await anyio.to_thread.run_sync(read, file, text)
            taker.problems += found.problems
            for skill in found.skills:
                await (taker.add_skill(file, into, skill) if into else taker.add_agent(file, _agent_with(skill)))
            for agent in found.agents:
                await taker.add_agent(file, agent)
    return Taken(tuple(taker.items), tuple(taker.problems), dry_run)


class _Taker:
    def __init__(self, zoo: Zoo, dry_run: bool, by: str, ids: set[str]) -> None:
        self._zoo = zoo
        self._dry_run = dry_run
        self._by = by
        self._ids = ids
        self.items: list[TakenItem] = []
        self.problems: list[Problem] = []

    async def add_agent(self, file: str, given: AgentInput) -> None:
        wanted = given.id
        if wanted in self._ids:
            given = given.model_copy(update={"id": free_id(wanted, self._ids)})
            self._note(file, f"The id {wanted!r} is in use; the agent was imported as {given.id!r}.")
        try:
            if self._dry_run:
                agent = new_agent(given, given.id or "agent")
            else:
                agent = (await self._zoo.create(given, by=self._by)).agent
        except (InvalidFields, Conflict) as error:
            self._refuse(file, f"Agent {given.name!r} was not imported: {error.message}.")
            return
        self._ids.add(agent.id)
        self.items.append(TakenItem(agent.id, agent.name))

    async def add_skill(self, file: str, agent_id: str, given: SkillInput) -> None:
        try:
            if self._dry_run:
                agent = with_new_skill((await self._zoo.get(agent_id)).agent, given)
            else:
                agent = (await self._zoo.add_skill(agent_id, given, by=self._by)).agent
        except InvalidFields as error:
            self._refuse(file, f"Skill {given.name!r} was not imported: {error.message}.")
            return
        self.items.append(TakenItem(agent.id, agent.name, agent.skills[-1].id))

    def _note(self, file: str, message: str) -> None:
        self.problems.append(Problem("agent.note", message, None, file))

    def _refuse(self, file: str, message: str) -> None:
        self.problems.append(Problem("agent.unreadable", message, None, file))


def _agent_with(skill: SkillInput) -> AgentInput:
    summary = skill.description.strip().partition("\n")[0][:200]
    given = {"name": skill.name, "description": summary, "skills": [skill]}
    return parse(AgentInput, given)
