"""Agents, their revisions and their brains, as rows; `agents.zoo` converts them to values.

Every change of an agent is a row of `agent_revisions` with the next number, in the same transaction. A concurrent
writer with the same number violates the key, and its whole write is rolled back. Entries are guarded by their version
in the same way.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, delete, func, insert, select, type_coerce, types, update

from toolcrib.store.batch import Many, Statement
from toolcrib.store.engine import Store
from toolcrib.store.schema import agent_revisions, agents, brain

RevisionKind = Literal["created", "changed", "restored", "deleted"]
_AT_ONCE = 500
"""Ids per query: engines have a limit."""
_MOST_PINNED = 500
"""More than fits into any prompt."""


class IndexRow(NamedTuple):
    """The fields of an agent that are always loaded; `grants` is JSON."""

    id: str
    name: str
    description: str
    version: int
    brain_version: int
    updated_at: str
    grants: bytes


class AgentRow(NamedTuple):
    """One agent; `body` is its JSON."""

    id: str
    version: int
    created_at: str
    updated_at: str
    body: bytes


class RevisionRow(NamedTuple):
    """One change of an agent; `body` is the new content, None if it was deleted."""

    agent_id: str
    version: int
    at: str
    author: str
    kind: RevisionKind
    body: bytes | None


class EntryRow(NamedTuple):
    """One entry of a brain; `version` increases with every change."""

    agent_id: str
    id: str
    version: int
    type: str
    at: str
    pinned: bool
    body: bytes


@dataclass(frozen=True, slots=True)
class EntryFilter:
    """Selects entries, the newest `limit` of them; None means any. Both dates are inclusive."""

    type: str | None = None
    date_from: str | None = None
    date_to: str | None = None
    pinned: bool | None = None
    limit: int = 1_000


async def read_versions(store: Store) -> dict[str, tuple[int, int]]:
    """Return the version of every agent and of its brain, to detect changes."""
    # Ids need no decoding, and there may be thousands.
    query = select(type_coerce(agents.c.id, types.Text), agents.c.version, agents.c.brain_version)
    rows = await store.read(lambda connection: connection.execute(query).all())
    return {agent_id: (version, brain_version) for agent_id, version, brain_version in rows}


async def read_index(store: Store, ids: Sequence[str] | None = None) -> list[IndexRow]:
    """Return these agents, or all, without their large fields."""
    columns = [agents.c[name] for name in IndexRow._fields]

    def work(connection: Connection) -> list[IndexRow]:
        if ids is None:
            return [IndexRow(*row) for row in connection.execute(select(*columns))]
        parts = (ids[start : start + _AT_ONCE] for start in range(0, len(ids), _AT_ONCE))
        queries = (select(*columns).where(agents.c.id.in_(part)) for part in parts)
        return [IndexRow(*row) for query in queries for row in connection.execute(query)]

    return await store.read(work)


async def read_agent(store: Store, agent_id: str) -> AgentRow | None:
    """Return one agent."""
    columns = (agents.c[name] for name in AgentRow._fields)
    query = select(*columns).where(agents.c.id == agent_id)
    row = await store.read(lambda connection: connection.execute(query).first())
    return AgentRow(*row) if row else None


def pinned_too(agent_id: str, connection: Connection) -> tuple[AgentRow | None, list[EntryRow]]:
    """Return one agent and its pinned entries, newest first, in one read."""
    columns = (agents.c[name] for name in AgentRow._fields)
    row = connection.execute(select(*columns).where(agents.c.id == agent_id)).first()
    entries = connection.execute(_entries(agent_id, EntryFilter(pinned=True, limit=_MOST_PINNED))).all()
    return AgentRow(*row) if row else None, [EntryRow(*entry) for entry in entries]


async def last_version(store: Store, agent_id: str) -> int:
    """Return the number of the newest revision of this id, including deleted agents; 0 if there is none."""
    query = select(func.max(agent_revisions.c.version)).where(agent_revisions.c.agent_id == agent_id)
    return await store.read(lambda connection: connection.scalar(query)) or 0


async def has_history(store: Store) -> bool:
    """Return whether an agent ever existed."""
    query = select(agent_revisions.c.version).limit(1)
    return await store.read(lambda connection: connection.execute(query).first()) is not None


async def add_agents(
    store: Store, made: Sequence[tuple[IndexRow, RevisionRow]], entries: Iterable[EntryRow] = ()
) -> None:
    """Add new agents with their first entries, all or none.

    Raises `ConstraintError` if an id or number is taken.
    """
    rows = [index._asdict() | {"created_at": revision.at, "body": revision.body or b""} for index, revision in made]
    statements: list[Statement] = [
        Many(insert(agents), rows),
        Many(insert(agent_revisions), [revision._asdict() for _, revision in made]),
    ]
    if given := [entry._asdict() for entry in entries]:
        statements.append(Many(insert(brain), given))
    await store.write(*statements)


async def change_agent(store: Store, index: IndexRow, revision: RevisionRow) -> None:
    """Replace an agent by its next revision. Raises `ConstraintError` if another writer was first."""
    values = index._asdict() | {"body": revision.body}
    values.pop("brain_version")  # the brain has its own version
    await store.write(
        insert(agent_revisions).values(**revision._asdict()),
        update(agents).where(agents.c.id == index.id).values(**values),
    )


async def remove_agent(store: Store, revision: RevisionRow) -> None:
    """Delete an agent and its brain. Raises `ConstraintError` if another writer changed it first."""
    await store.write(
        insert(agent_revisions).values(**revision._asdict()),
        delete(agents).where(agents.c.id == revision.agent_id),
    )


async def read_revisions(store: Store, agent_id: str, limit: int) -> list[RevisionRow]:
    """Return the newest revisions of an agent, newest first."""
    query = select(agent_revisions).where(agent_revisions.c.agent_id == agent_id)
    query = query.order_by(agent_revisions.c.version.desc()).limit(limit)
    rows = await store.read(lambda connection: connection.execute(query).all())
    return [RevisionRow(*row) for row in rows]


async def read_revision(store: Store, agent_id: str, version: int) -> RevisionRow | None:
    """Return one revision."""
    here = (agent_revisions.c.agent_id == agent_id) & (agent_revisions.c.version == version)
    query = select(agent_revisions).where(here)
    row = await store.read(lambda connection: connection.execute(query).first())
    return RevisionRow(*row) if row else None


async def read_entries(store: Store, agent_id: str, wanted: EntryFilter) -> list[EntryRow]:
    """Return the matching entries of an agent, newest first."""
    query = _entries(agent_id, wanted)
    rows = await store.read(lambda connection: connection.execute(query).all())
    return [EntryRow(*row) for row in rows]


async def read_entry(store: Store, agent_id: str, entry_id: str) -> EntryRow | None:
    """Return one entry."""
    query = select(brain).where(_is(agent_id, entry_id))
    row = await store.read(lambda connection: connection.execute(query).first())
    return EntryRow(*row) if row else None


async def add_entry(store: Store, entry: EntryRow) -> None:
    """Add an entry. Raises `ConstraintError` if its id is taken or the agent does not exist."""
    await store.write(insert(brain).values(**entry._asdict()), _touch(entry.agent_id))


async def change_entry(store: Store, entry: EntryRow) -> bool:
    """Replace an entry that has the previous version; return False if it has another or is gone."""
    here = _is(entry.agent_id, entry.id) & (brain.c.version == entry.version - 1)
    done = await store.write(update(brain).where(here).values(**entry._asdict()), _touch(entry.agent_id))
    return done[0] == 1


async def remove_entry(store: Store, agent_id: str, entry_id: str) -> bool:
    """Delete an entry; return False if it was already gone."""
    done = await store.write(delete(brain).where(_is(agent_id, entry_id)), _touch(agent_id))
    return done[0] == 1


def _entries(agent_id: str, wanted: EntryFilter) -> Select[*tuple[Any, ...]]:
    conditions = [
        brain.c.agent_id == agent_id,
        *([brain.c.type == wanted.type] if wanted.type is not None else ()),
        *([brain.c.at >= wanted.date_from] if wanted.date_from is not None else ()),
        *([brain.c.at <= wanted.date_to] if wanted.date_to is not None else ()),
        *([brain.c.pinned == wanted.pinned] if wanted.pinned is not None else ()),
    ]
    return select(brain).where(*conditions).order_by(brain.c.at.desc(), brain.c.id).limit(wanted.limit)


def _is(agent_id: str, entry_id: str) -> ColumnElement[bool]:
    return (brain.c.agent_id == agent_id) & (brain.c.id == entry_id)


def _touch(agent_id: str) -> Statement:
    return update(agents).where(agents.c.id == agent_id).values(brain_version=agents.c.brain_version + 1)
