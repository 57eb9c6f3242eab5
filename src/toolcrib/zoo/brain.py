"""The brain of an agent: what it remembers, written by people and by the agent itself.

A partial change reads, merges and writes under the version it read, again if somebody else was faster, so no two
changes of different fields undo each other.

Above: `zoo` owns it; REST and the built-in server use it. Below: `store.agents`. It must never change a field that
nobody named.
"""

import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, TypeVar

import orjson

from toolcrib.errors import Conflict, NotFound
from toolcrib.model.agents import BrainEntry, EntrySource
from toolcrib.model.json import JsonObject
from toolcrib.store import ConstraintError, Store
from toolcrib.store.agents import (
    EntryFilter,
    EntryRow,
    add_entry,
    change_entry,
    read_agent,
    read_entries,
    read_entry,
    remove_entry,
)
from toolcrib.zoo.check import FieldProblem, InvalidFields
from toolcrib.zoo.input import EntryChanges, EntryInput, moment, named

Done = TypeVar("Done")

TRIES = 20
"""How often a change is made anew because somebody else was faster."""
MOST_LISTED = 1_000
MOST_SEARCHED = 10_000


@dataclass(frozen=True, slots=True)
class EntryQuery:
    """Which entries: of a type, with any of these tags, from and to a date (both included), pinned or not."""

    type: str | None = None
    tags: tuple[str, ...] = ()
    date_from: str | None = None
    date_to: str | None = None
    pinned: bool | None = None
    limit: int = MOST_LISTED

    def filter(self) -> EntryFilter:
        """What the database looks at; raises `InvalidFields` for what is not a date."""
        wrong: list[FieldProblem] = []
        ends = {"dateFrom": (self.date_from, False), "dateTo": (self.date_to, True)}
        found: dict[str, str | None] = {}
        for name, (text, end_of_day) in ends.items():
            try:
                found[name] = moment(text, end_of_day=end_of_day) if text is not None else None
            except ValueError:
                wrong.append(FieldProblem((name,), "is not a date, such as 2026-01-31 or 2026-01-31T12:00:00Z"))
        if wrong:
            raise InvalidFields(wrong)
        # Tags are looked at afterwards, among more than are wanted.
        limit = MOST_SEARCHED if self.tags else self.limit
        return EntryFilter(self.type, found["dateFrom"], found["dateTo"], self.pinned, limit)


class Write(Protocol):
    """Carries out a change of one agent to its end, and makes it known."""

    async def __call__(self, agent_id: str, work: Awaitable[Done], /) -> Done: ...


class Brain:
    """The entries of all agents. `write` carries out every change of one agent's, and makes it known."""

    def __init__(self, store: Store, write: Write) -> None:
        self._store = store
        self._write = write

    async def find(self, agent_id: str, query: EntryQuery) -> list[BrainEntry]:
        """The entries that pass, newest first."""
        rows = await read_entries(self._store, agent_id, query.filter())
        if not rows:
            await self._check_agent(agent_id)
        entries = (entry_of(row) for row in rows)
        wanted = [entry for entry in entries if not query.tags or not set(query.tags).isdisjoint(entry.tags)]
        return wanted[: query.limit]

    async def get(self, agent_id: str, entry_id: str) -> BrainEntry:
        """One entry."""
        return entry_of(await self._row(agent_id, entry_id))

    async def add(self, agent_id: str, given: EntryInput, *, source: EntrySource) -> BrainEntry:
        """Remember something; `source` is who says so, where the entry does not."""
        entry = new_entry(agent_id, given, source)
        try:
            await self._write(agent_id, add_entry(self._store, row_of(entry, 1)))
        except ConstraintError:
            await self._check_agent(agent_id)
            raise Conflict("agent.entry_exists", f"Entry with ID '{entry.id}' exists already.") from None
        return entry

    async def change(self, agent_id: str, entry_id: str, given: EntryChanges) -> BrainEntry:
        """Change the named fields, and no others; of the metadata too."""
        fields = named(given)
        if "metadata" in fields:
            fields["metadata"] = _without_none(named(given.metadata))
        return await self._change(agent_id, entry_id, lambda shape: _merged(shape, fields))

    async def pin(self, agent_id: str, entry_id: str, pinned: bool | None = None) -> BrainEntry:
        """Pin an entry or let it go; without a word which, the other of what it is."""
        return await self._change(
            agent_id, entry_id, lambda shape: {**shape, "pinned": not shape["pinned"] if pinned is None else pinned}
        )

    async def delete(self, agent_id: str, entry_id: str) -> None:
        """Forget an entry."""
        if not await self._write(agent_id, remove_entry(self._store, agent_id, entry_id)):
            await self._row(agent_id, entry_id)

    async def _change(self, agent_id: str, entry_id: str, make: Callable[[JsonObject], JsonObject]) -> BrainEntry:
        for _ in range(TRIES):
            row = await self._row(agent_id, entry_id)
            entry = BrainEntry.of_json(make(orjson.loads(row.body)))
            if await self._write(agent_id, change_entry(self._store, row_of(entry, row.version + 1))):
                return entry
        raise Conflict("request.stale", f"Entry with ID '{entry_id}' is being changed by others.")

    async def _row(self, agent_id: str, entry_id: str) -> EntryRow:
        row = await read_entry(self._store, agent_id, entry_id)
        if row is None:
            await self._check_agent(agent_id)
            raise NotFound("agent.entry_unknown", f"Entry with ID '{entry_id}' not found.")
        return row

    async def _check_agent(self, agent_id: str) -> None:
        if await read_agent(self._store, agent_id) is None:
            raise unknown_agent(agent_id)


def unknown_agent(agent_id: str) -> NotFound:
    """There is no agent of this id."""
    return NotFound("agent.unknown", f"Agent with ID '{agent_id}' not found.")


def new_entry(agent_id: str, given: EntryInput, source: EntrySource) -> BrainEntry:
    """The entry that was given, with what was left out filled in."""
    metadata = {"source": source} | _without_none(named(given.metadata))
    return BrainEntry(
        id=given.id or str(uuid.uuid4()),
        agent_id=agent_id,
        type=given.type,
        content=given.content,
        timestamp=given.timestamp or moment(datetime.now(UTC).isoformat()),
        pinned=given.pinned,
        tags=tuple(given.tags),
        metadata=metadata,
    )


def row_of(entry: BrainEntry, version: int) -> EntryRow:
    """The entry as it is kept."""
    body = orjson.dumps(entry.to_json())
    return EntryRow(entry.agent_id, entry.id, version, entry.type, entry.timestamp, entry.pinned, body)


def entry_of(row: EntryRow) -> BrainEntry:
    """The entry that is kept."""
    return BrainEntry.of_json(orjson.loads(row.body))


def entries_of(rows: Sequence[EntryRow]) -> list[BrainEntry]:
    """The entries that are kept."""
    return [entry_of(row) for row in rows]


def _merged(shape: JsonObject, fields: JsonObject) -> JsonObject:
    metadata = shape["metadata"] | fields.get("metadata", {})
    return {**shape, **fields, "metadata": metadata}


def _without_none(fields: JsonObject) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value is not None}
