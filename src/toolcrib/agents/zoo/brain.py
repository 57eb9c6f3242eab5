"""The brain of an agent: its memory, written by people and by the agent itself.

A partial change is a read-merge-write with optimistic locking, retried on conflict, so concurrent changes of different
fields do not undo each other.

Pinned entries become part of the agent's prompt. So only the owner pins entries written by others (a named token, a
session, another agent), and others cannot change or delete pinned entries.

Must never change a field that the request does not name.
"""

import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeVar

from toolcrib.agents.zoo.check import FieldProblem, InvalidFields
from toolcrib.base.lazy_modules import lazy_module
from toolcrib.model.agents import BrainEntry, EntrySource, unknown_agent
from toolcrib.model.errors import Conflict, Denied, NotFound
from toolcrib.model.json import JsonObject, dumps, loads
from toolcrib.model.times import moment
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
from toolcrib.store.batch import ConstraintError
from toolcrib.store.engine import Store

if TYPE_CHECKING:
    from toolcrib.agents.zoo import input as agent_input
    from toolcrib.agents.zoo.input import EntryChanges, EntryInput
else:
    agent_input = lazy_module("toolcrib.agents.zoo.input")

Done = TypeVar("Done")

TRIES = 20
"""Attempts before a conflicting change is abandoned."""
MOST_LISTED = 1_000
MOST_SEARCHED = 10_000


@dataclass(frozen=True, slots=True)
class EntryQuery:
    """Filters entries by type, any of these tags, an inclusive date range, and whether they are pinned."""

    type: str | None = None
    tags: tuple[str, ...] = ()
    date_from: str | None = None
    date_to: str | None = None
    pinned: bool | None = None
    limit: int = MOST_LISTED

    def filter(self) -> EntryFilter:
        """Return the database filter; raises `InvalidFields` for an invalid date."""
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
        # Tags are filtered afterwards, among more rows than requested.
        limit = MOST_SEARCHED if self.tags else self.limit
        return EntryFilter(self.type, found["dateFrom"], found["dateTo"], self.pinned, limit)


@dataclass(frozen=True, slots=True)
class Author:
    """The author of a change: the owner, the agent itself, or another principal by name."""

    kind: Literal["owner", "agent", "other"]
    name: str = ""


OWNER: Final = Author("owner")
ITSELF: Final = Author("agent")
UNPINNED: Final = (
    "The entry was stored unpinned: only the owner or the agent itself may pin entries of the agent's prompt."
)
_OF_OTHERS: Final = "is pinned, so it is part of the agent's prompt: only the owner or the agent itself may change it"
_TO_PIN: Final = "cannot be pinned by others: only the owner or the agent itself may add to its prompt"
_FOREIGN: Final = (
    "was written by {writer}: only the owner may pin it, because pinned entries are part of the agent's prompt"
)


class BrainWrite(Protocol):
    """Executes a change of one agent to completion and publishes it."""

    async def __call__(self, agent_id: str, work: Awaitable[Done], /) -> Done: ...


class Brain:
    """The entries of all agents. Every change runs through `write`, which publishes it."""

    def __init__(self, store: Store, write: BrainWrite) -> None:
        self._store = store
        self._write = write

    async def find(self, agent_id: str, query: EntryQuery) -> list[BrainEntry]:
        """Return the matching entries, newest first."""
        rows = await read_entries(self._store, agent_id, query.filter())
        if not rows:
            await self._check_agent(agent_id)
        entries = (entry_of(row) for row in rows)
        wanted = [entry for entry in entries if not query.tags or not set(query.tags).isdisjoint(entry.tags)]
        return wanted[: query.limit]

    async def get(self, agent_id: str, entry_id: str) -> BrainEntry:
        """Return one entry."""
        return entry_of(await self._row(agent_id, entry_id))

    async def add(
        self, agent_id: str, given: "EntryInput", *, source: EntrySource, author: Author = OWNER
    ) -> BrainEntry:
        """Add an entry; `source` is the default for its metadata.

        Entries of other authors are stored unpinned, with the author's name in `metadata.writer`.
        """
        entry = new_entry(agent_id, given, source)
        if author.kind == "other":
            entry = replace(entry, pinned=False, metadata={**entry.metadata, "writer": author.name})
        try:
            await self._write(agent_id, add_entry(self._store, row_of(entry, 1)))
        except ConstraintError:
            await self._check_agent(agent_id)
            raise Conflict("agent.entry_exists", f"Entry with ID '{entry.id}' already exists.") from None
        return entry

    async def change(
        self, agent_id: str, entry_id: str, given: "EntryChanges", *, author: Author = OWNER
    ) -> BrainEntry:
        """Change only the named fields, in the metadata too. Raises `agent.entry_pinned`."""
        fields = agent_input.named(given)
        if "metadata" in fields:
            fields["metadata"] = _without_none(agent_input.named(given.metadata))
        return await self._change(agent_id, entry_id, lambda shape: _with_author(_merge(shape, fields), shape, author))

    async def pin(self, agent_id: str, entry_id: str, pinned: bool | None = None) -> BrainEntry:
        """Pin or unpin an entry; toggle it if `pinned` is None."""
        return await self._change(
            agent_id, entry_id, lambda shape: {**shape, "pinned": not shape["pinned"] if pinned is None else pinned}
        )

    async def delete(self, agent_id: str, entry_id: str, *, author: Author = OWNER) -> None:
        """Delete an entry. Raises `agent.entry_pinned`."""
        if author.kind == "other" and (await self.get(agent_id, entry_id)).pinned:
            raise Denied("agent.entry_pinned", f"Entry with ID '{entry_id}' {_OF_OTHERS}.")
        if not await self._write(agent_id, remove_entry(self._store, agent_id, entry_id)):
            await self._row(agent_id, entry_id)

    async def _change(self, agent_id: str, entry_id: str, make: Callable[[JsonObject], JsonObject]) -> BrainEntry:
        for _ in range(TRIES):
            row = await self._row(agent_id, entry_id)
            entry = BrainEntry.of_json(make(loads(row.body)))
            if await self._write(agent_id, change_entry(self._store, row_of(entry, row.version + 1))):
                return entry
        raise Conflict("request.stale", f"Entry with ID '{entry_id}' is being changed by another caller. Try again.")

    async def _row(self, agent_id: str, entry_id: str) -> EntryRow:
        row = await read_entry(self._store, agent_id, entry_id)
        if row is None:
            await self._check_agent(agent_id)
            raise NotFound("agent.entry_unknown", f"Entry with ID '{entry_id}' not found.")
        return row

    async def _check_agent(self, agent_id: str) -> None:
        if await read_agent(self._store, agent_id) is None:
            raise unknown_agent(agent_id)


def new_entry(agent_id: str, given: "EntryInput", source: EntrySource) -> BrainEntry:
    """Return a new entry with defaults for missing fields."""
    metadata = {"source": source} | _without_none(agent_input.named(given.metadata))
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
    """Return the entry's database row."""
    body = dumps(entry.to_json())
    return EntryRow(entry.agent_id, entry.id, version, entry.type, entry.timestamp, entry.pinned, body)


def entry_of(row: EntryRow) -> BrainEntry:
    """Return the entry of a database row."""
    return BrainEntry.of_json(loads(row.body))


def entries_of(rows: Sequence[EntryRow]) -> list[BrainEntry]:
    """Return the entries of database rows."""
    return [entry_of(row) for row in rows]


def _merge(shape: JsonObject, fields: JsonObject) -> JsonObject:
    metadata = shape["metadata"] | fields.get("metadata", {})
    return {**shape, **fields, "metadata": metadata}


def _with_author(after: JsonObject, before: JsonObject, author: Author) -> JsonObject:
    """Return the changed entry with its content's author; raises `agent.entry_pinned` if the change is not allowed."""
    entry = BrainEntry.of_json(after)
    if after["content"] != before["content"]:
        entry = _written_by(entry, author)
    elif (writer := BrainEntry.of_json(before).writer) is not None and entry.writer is None:
        entry = replace(entry, metadata={**entry.metadata, "writer": writer})  # only new content changes the writer
    name = f"Entry with ID '{before['id']}'"
    if author.kind == "other" and (before["pinned"] or after["pinned"]):
        raise Denied("agent.entry_pinned", f"{name} {_OF_OTHERS if before['pinned'] else _TO_PIN}.")
    if author.kind == "agent" and entry.writer is not None and after["pinned"] and not before["pinned"]:
        raise Denied("agent.entry_pinned", f"{name} {_FOREIGN.format(writer=entry.writer)}.")
    return entry.to_json()


def _written_by(entry: BrainEntry, author: Author) -> BrainEntry:
    """Return the entry with the author of its new content."""
    metadata = {name: value for name, value in entry.metadata.items() if name != "writer"}
    if author.kind == "other":
        metadata["writer"] = author.name
    elif entry.writer is not None and metadata.get("source") == "auto":
        metadata["source"] = "mcp" if author.kind == "agent" else "manual"  # no longer a handover
    return replace(entry, metadata=metadata)


def _without_none(fields: JsonObject) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value is not None}
