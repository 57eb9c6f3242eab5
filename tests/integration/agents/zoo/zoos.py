"""A zoo on a real database, and what it published."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from change_recorders import Unrecorded
from toolcrib.agents.zoo.check import parse
from toolcrib.agents.zoo.input import AgentChanges, AgentInput, EntryChanges, EntryInput, SkillChanges
from toolcrib.agents.zoo.zoo import StoredAgent, Zoo
from toolcrib.model.events import HostEventKind
from toolcrib.model.json import JsonObject
from toolcrib.store.engine import Store, open_store


@dataclass
class Keeper:
    """A zoo with the words of tests."""

    store: Store
    events: list[tuple[HostEventKind, JsonObject]] = field(default_factory=list[tuple[HostEventKind, JsonObject]])
    heard: anyio.Event = field(default_factory=anyio.Event)
    renewed: int = 0
    zoo: Zoo = field(init=False)

    def __post_init__(self) -> None:
        self.zoo = Zoo(self.store, self._publish, Unrecorded(), self._renew, lambda cwd: ("Bundled.",) if cwd else ())

    def _publish(self, kind: HostEventKind, data: JsonObject) -> None:
        self.events.append((kind, data))
        self.heard.set()

    def _renew(self) -> None:
        self.renewed += 1

    def told(self) -> list[tuple[str, str]]:
        """What was published since the last time: agent and change."""
        told = [(data["agentId"], data["change"]) for kind, data in self.events if kind == "agent_changed"]
        assert len(told) == len(self.events)
        self.events.clear()
        return told

    async def create(self, **fields: Any) -> StoredAgent:
        """Make an agent."""
        return await self.zoo.create(parse(AgentInput, fields), by="test")

    async def update(self, agent_id: str, version: int | None = None, **fields: Any) -> StoredAgent:
        """Change an agent."""
        return await self.zoo.update(agent_id, parse(AgentChanges, fields), version=version, by="test")

    async def switch(self, agent_id: str, skill: str, enabled: bool) -> StoredAgent:
        """Switch a skill."""
        return await self.zoo.change_skill(agent_id, skill, parse(SkillChanges, {"enabled": enabled}), by="test")

    async def remember(self, agent_id: str, content: str, **fields: Any) -> str:
        """Add an entry; gives its id."""
        given = parse(EntryInput, {"type": "note", "content": content, **fields})
        return (await self.zoo.brain.add(agent_id, given, source="manual")).id

    async def amend(self, agent_id: str, entry_id: str, **fields: Any) -> JsonObject:
        """Change an entry; gives it whole."""
        return (await self.zoo.brain.change(agent_id, entry_id, parse(EntryChanges, fields))).to_json()


@asynccontextmanager
async def keeping(database: str) -> AsyncGenerator[Keeper]:
    """A zoo on this database while the block runs."""
    async with open_store(database) as store:
        keeper = Keeper(store)
        await keeper.zoo.open()
        yield keeper
