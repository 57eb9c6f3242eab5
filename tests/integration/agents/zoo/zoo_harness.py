"""A zoo on a real database, with the events that it published."""

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
class ZooHarness:
    """A zoo with shorthands for tests."""

    store: Store
    events: list[tuple[HostEventKind, JsonObject]] = field(default_factory=list[tuple[HostEventKind, JsonObject]])
    published: anyio.Event = field(default_factory=anyio.Event)
    renewed: int = 0
    zoo: Zoo = field(init=False)

    def __post_init__(self) -> None:
        self.zoo = Zoo(self.store, self._publish, Unrecorded(), self._renew, lambda cwd: ("Bundled.",) if cwd else ())

    def _publish(self, kind: HostEventKind, data: JsonObject) -> None:
        self.events.append((kind, data))
        self.published.set()

    def _renew(self) -> None:
        self.renewed += 1

    def take_changes(self) -> list[tuple[str, str]]:
        """Return the agents and changes published since the last call."""
        take_changes = [(data["agentId"], data["change"]) for kind, data in self.events if kind == "agent_changed"]
        assert len(take_changes) == len(self.events)
        self.events.clear()
        return take_changes

    async def create(self, **fields: Any) -> StoredAgent:
        """Create an agent."""
        return await self.zoo.create(parse(AgentInput, fields), by="test")

    async def update(self, agent_id: str, version: int | None = None, **fields: Any) -> StoredAgent:
        """Change an agent."""
        return await self.zoo.update(agent_id, parse(AgentChanges, fields), version=version, by="test")

    async def switch(self, agent_id: str, skill: str, enabled: bool) -> StoredAgent:
        """Enable or disable a skill."""
        return await self.zoo.change_skill(agent_id, skill, parse(SkillChanges, {"enabled": enabled}), by="test")

    async def remember(self, agent_id: str, content: str, **fields: Any) -> str:
        """Add a brain entry and return its id."""
        entry = parse(EntryInput, {"type": "note", "content": content, **fields})
        return (await self.zoo.brain.add(agent_id, entry, source="manual")).id

    async def amend(self, agent_id: str, entry_id: str, **fields: Any) -> JsonObject:
        """Change a brain entry and return all its fields."""
        return (await self.zoo.brain.change(agent_id, entry_id, parse(EntryChanges, fields))).to_json()


@asynccontextmanager
async def open_zoo_harness(database: str) -> AsyncGenerator[ZooHarness]:
    """Open a zoo on this database."""
    async with open_store(database) as store:
        harness = ZooHarness(store)
        await harness.zoo.open()
        yield harness
