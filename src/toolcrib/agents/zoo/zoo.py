"""The zoo: stores agents, versions every change, and compiles their prompts.

Agents are read from the store on demand. Only an index is kept in memory, for synchronous questions: which agents exist
and what each may use. Every write updates it; if other cribs share the database, it is refreshed before every listing
and every second. All differences are published, including other cribs' changes.

Must never overwrite a version that the writer has not read.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import anyio

from toolcrib.agents.zoo.brain import (
    TRIES,
    Brain,
    Done,
    EntryQuery,
    entries_of,
    new_entry,
    row_of,
)
from toolcrib.agents.zoo.check import changed_agent, free_id, new_agent, parse, with_new_skill, with_skill
from toolcrib.agents.zoo.compile import Compiled, compile_prompt, grants, structured
from toolcrib.agents.zoo.starters import STARTERS
from toolcrib.base.lazy_modules import lazy_module
from toolcrib.model.agents import Agent, AgentSummary, InjectFormat, ToolListing, slug, unknown_agent
from toolcrib.model.changes import ChangeRecorder
from toolcrib.model.errors import Conflict, NotFound, Unavailable
from toolcrib.model.events import HostEventKind
from toolcrib.model.json import JsonObject, dumps, loads
from toolcrib.model.times import moment
from toolcrib.store.agents import (
    AgentRow,
    EntryRow,
    IndexRow,
    RevisionKind,
    RevisionRow,
    add_agents,
    change_agent,
    has_history,
    last_version,
    pinned_too,
    read_agent,
    read_index,
    read_revision,
    read_revisions,
    read_versions,
    remove_agent,
)
from toolcrib.store.batch import ConstraintError
from toolcrib.store.cluster_state import ClusterState
from toolcrib.store.engine import Store

if TYPE_CHECKING:
    from toolcrib.agents.zoo import input as agent_input
    from toolcrib.agents.zoo.input import AgentChanges, AgentInput, SkillChanges, SkillInput
else:
    agent_input = lazy_module("toolcrib.agents.zoo.input")

Publish = Callable[[HostEventKind, JsonObject], object]
Permissions = tuple[tuple[str, ...] | None, tuple[str, ...]]
"""The agent's own permissions (None: the default set), and the tools of its enabled skills."""

MOST_REVISIONS = 200
_CHANGE_KINDS: Mapping[RevisionKind, str] = {
    "created": "agents.create",
    "changed": "agents.change",
    "restored": "agents.restore",
    "deleted": "agents.delete",
}
MOST_SHOWN = 200
"""Brain entries included in an agent's representation; the brain lists all of them."""


@dataclass(frozen=True, slots=True)
class StoredAgent:
    """A stored agent, with its version and timestamps."""

    agent: Agent
    version: int
    created_at: str
    updated_at: str

    def to_json(self) -> JsonObject:
        """Return the public JSON representation, without `brainEntries`."""
        times = {"createdAt": self.created_at, "updatedAt": self.updated_at}
        return self.agent.to_json() | {"version": self.version} | times


@dataclass(frozen=True, slots=True)
class Revision:
    """One change of an agent: author, time, and the resulting agent; None if it was deleted."""

    version: int
    at: str
    author: str
    kind: RevisionKind
    agent: Agent | None

    def to_json(self) -> JsonObject:
        """Return the public JSON representation used in lists."""
        return {"version": self.version, "at": self.at, "author": self.author, "kind": self.kind}


class Zoo:
    """All agents.

    Publishes `agent_changed` for each agent that was created, changed or deleted. Calls `renew` first, once for several
    changes, if the list of agents or their permissions changed.
    """

    def __init__(
        self,
        store: Store,
        publish: Publish,
        changes: ChangeRecorder,
        renew: Callable[[], object] = lambda: None,
        additions: Callable[[str | None], Sequence[str]] = lambda _: (),
        echo: Publish | None = None,
    ) -> None:
        """`additions` returns the prompt additions of a directory's bundles. `changes` writes the audit records.

        `echo` gets the changes that other cribs on the same database made and published.
        """
        self._changes = changes
        self._additions = additions
        self._store = store
        self._publish = publish
        self._echo = echo or publish
        self._renew = renew
        self._lock = anyio.Lock()
        self._index: dict[str, IndexRow] = {}
        self._grants: dict[str, Permissions] = {}
        self._listings: dict[str, tuple[int, ToolListing]] = {}
        self._changes_to_publish: list[tuple[Publish, JsonObject]] = []
        self._elsewhere = anyio.Event()
        self._holding = 0
        self._doubtful = False
        self._writing = Counter[str]()
        """The changes that this crib is making now, by agent."""
        self.brain = Brain(store, self._write)

    async def open(self) -> None:
        """Load the index; a database that never had an agent gets the starters."""
        if not await has_history(self._store):
            at = _now()
            rows = [_rows(agent, 1, at, "toolcrib", "created") for agent in STARTERS]
            with suppress(ConstraintError):  # another crib on the same database was first
                await add_agents(self._store, rows)
        self._index = {row.id: row for row in await read_index(self._store)}

    async def follow(self) -> None:
        """Pick up the reported changes by other cribs on the same database, until cancelled."""
        while self._store.shared:
            await self._elsewhere.wait()
            self._elsewhere = anyio.Event()
            with suppress(Unavailable):  # the next caller that needs the database gets the error
                await self.refresh()

    def on_poll(self, state: ClusterState) -> None:
        """Have `follow` look for changes if the index differs from the database.

        Creating or deleting an agent also changes the permissions, and then everything is loaded again.
        """
        versions = sum(row.version + row.brain_version for row in self._index.values())
        if self._doubtful or (state.agents, state.agent_versions) != (len(self._index), versions):
            self.changed_elsewhere()

    def changed_elsewhere(self) -> None:
        """Have `follow` look for changes now: another crib reported one."""
        self._elsewhere.set()

    async def refresh(self) -> None:
        """Compare the index with the store, reload what differs, and publish the changes."""
        async with self._lock:
            versions = await read_versions(self._store)
            publish = self._publish if self._doubtful else self._echo
            self._doubtful = False
            known = {row.id: (row.version, row.brain_version) for row in self._index.values()}
            differing = [each for each in {*known, *versions} if known.get(each) != versions.get(each)]
            if differing:
                rows = await read_index(self._store, differing)
                # A change that this crib is making may be found here before its writer publishes it.
                own = [each for each in differing if self._writing[each]]
                self._take(own, rows, self._publish)
                self._take([each for each in differing if not self._writing[each]], rows, publish)
        self._publish_changes()

    async def _write(self, agent_id: str, work: Awaitable[Done], /) -> Done:
        """Execute a change and update the index, even if the caller is cancelled."""
        with anyio.CancelScope(shield=True):
            self._writing[agent_id] += 1
            try:
                done = await work
                await self._take_own(agent_id)
            finally:
                self._writing[agent_id] -= 1
            self._publish_changes()
            return done
        raise AssertionError("nothing ends a shielded scope")

    async def _take_own(self, agent_id: str) -> None:
        """Update the index after a change that was stored here."""
        try:
            async with self._lock:
                self._take([agent_id], await read_index(self._store, [agent_id]), self._publish)
        except Unavailable:  # the change itself was stored
            self._doubtful = True

    async def _record_change(
        self,
        kind: RevisionKind,
        agent_id: str,
        before: Agent | None,
        after: Agent | None,
        work: Callable[[], Awaitable[object]],
    ) -> None:
        """Execute a change of one agent, with its audit records."""
        changed = _change_of(agent_id, before, after)
        await self._changes.record(_CHANGE_KINDS[kind], changed, lambda: self._write(agent_id, work()))

    @contextmanager
    def together(self) -> Generator[None]:
        """Publish all changes of this block at its end, so that listings are rebuilt once."""
        self._holding += 1
        try:
            yield
        finally:
            self._holding -= 1
            self._publish_changes()

    def _take(self, ids: Sequence[str], rows: Sequence[IndexRow], publish: Publish) -> None:
        found = {row.id: row for row in rows}
        for agent_id in sorted(ids):
            old, new = self._index.get(agent_id), found.get(agent_id)
            if old == new:
                continue
            self._changes_to_publish.append((publish, _event(agent_id, old, new)))
            self._grants.pop(agent_id, None)
            self._listings.pop(agent_id, None)
            if new is None:
                del self._index[agent_id]
            else:
                self._index[agent_id] = new

    def _publish_changes(self) -> None:
        if self._holding or not self._changes_to_publish:
            return
        news, self._changes_to_publish = self._changes_to_publish, []
        if any(event["change"] != "brain" for _, event in news):
            self._renew()
        for publish, event in news:
            publish("agent_changed", event)

    @property
    def known(self) -> Sequence[AgentSummary]:
        """Return the agents as last read, sorted by id, without waiting."""
        return [AgentSummary(*row[:-1]) for _, row in sorted(self._index.items())]

    def granted(self, agent_id: str) -> Permissions | None:
        """Return an agent's permissions as last read; None if there is no such agent."""
        row = self._index.get(agent_id)
        if row is None:
            return None
        if agent_id not in self._grants:
            permissions, bundles = loads(row.grants)
            self._grants[agent_id] = (None if permissions is None else tuple(permissions), tuple(bundles))
        return self._grants[agent_id]

    async def listing(self, agent_id: str) -> ToolListing:
        """Return how MCP clients of an agent list its tools; read once for each version of the agent."""
        row, known = self._index.get(agent_id), self._listings.get(agent_id)
        if known is None or row is None or known[0] != row.version:
            stored = await self.get(agent_id)
            known = stored.version, ToolListing(stored.agent.listing, stored.agent.tool_tokens)
            self._listings[agent_id] = known
        return known[1]

    async def list(self) -> Sequence[AgentSummary]:
        """Return all agents, sorted by id."""
        if self._store.shared or self._doubtful:
            await self.refresh()
        return self.known

    async def get(self, agent_id: str) -> StoredAgent:
        """Return one agent."""
        return _parse_row(await read_agent(self._store, agent_id), agent_id)

    async def compiled(self, agent_id: str, cwd: str | None = None) -> tuple[StoredAgent, Compiled]:
        """Return one agent and its prompt for this directory."""
        return self._compile(agent_id, await self._store.read(partial(pinned_too, agent_id)), cwd)

    def compiled_now(self, agent_id: str, cwd: str | None = None) -> tuple[StoredAgent, Compiled]:
        """Like `compiled`, but synchronous; blocks briefly."""
        return self._compile(agent_id, self._store.read_now(partial(pinned_too, agent_id)), cwd)

    def _compile(
        self, agent_id: str, found: tuple[AgentRow | None, Sequence[EntryRow]], cwd: str | None
    ) -> tuple[StoredAgent, Compiled]:
        row, pinned = found
        stored = _parse_row(row, agent_id)
        return stored, compile_prompt(stored.agent, entries_of(pinned), self._additions(cwd))

    async def inject(self, agent_id: str, form: InjectFormat = "compiled", cwd: str | None = None) -> JsonObject:
        """Return what a chat needs to adopt this agent."""
        stored, compiled = await self.compiled(agent_id, cwd)
        if form == "structured":
            return structured(stored.agent)
        answer: JsonObject = {"agentId": agent_id, "agentName": stored.agent.name, "prompt": compiled.prompt}
        return answer | ({"warnings": list(compiled.warnings)} if compiled.warnings else {})

    async def whole(self, agent_id: str) -> JsonObject:
        """Return one agent's public representation, with its newest brain entries and token counts."""
        stored, compiled = await self.compiled(agent_id)
        entries = await self.brain.find(agent_id, EntryQuery(limit=MOST_SHOWN))
        shape = stored.to_json() | {"brainEntries": [entry.to_json() for entry in entries]}
        return shape | {"tokens": compiled.tokens.to_json()}

    async def create(self, given: "AgentInput", *, by: str) -> StoredAgent:
        """Create an agent; its id defaults to a slug of its name."""
        for _ in range(TRIES):
            await self.refresh()
            agent_id = given.id or free_id(slug(given.name, fallback="agent"), self._index)
            if agent_id in self._index:
                break
            agent = new_agent(given, agent_id)
            try:
                return await self._add(agent, by, given)
            except ConstraintError:
                continue
        raise Conflict("agent.exists", f"Agent with ID '{given.id or given.name}' already exists.")

    async def update(self, agent_id: str, given: "AgentChanges", *, version: int | None = None, by: str) -> StoredAgent:
        """Change only the named fields. Raises `request.stale` if `version` is not the current one."""
        expected = given.version if version is None else version
        return await self._change(agent_id, lambda agent: changed_agent(agent, given), expected, by)

    async def change_skill(
        self, agent_id: str, skill_id: str, given: "SkillChanges", *, version: int | None = None, by: str
    ) -> StoredAgent:
        """Change the named fields of one skill. Enabling it enables its requirements."""

        def make(agent: Agent) -> Agent:
            at = next((at for at, skill in enumerate(agent.skills) if skill.id == skill_id), None)
            if at is None:
                raise NotFound("agent.skill_unknown", f"Agent '{agent_id}' has no skill '{skill_id}'.")
            return with_skill(agent, at, agent_input.named(given))

        return await self._change(agent_id, make, version, by)

    async def add_skill(self, agent_id: str, given: "SkillInput", *, by: str) -> StoredAgent:
        """Add a skill to an agent; its id is made unique."""
        return await self._change(agent_id, lambda agent: with_new_skill(agent, given), None, by)

    async def delete(self, agent_id: str, *, version: int | None = None, by: str) -> None:
        """Delete an agent with its brain; its revisions are stored."""
        for _ in range(TRIES):
            stored = await self.get(agent_id)
            _check_version(stored, version)
            revision = RevisionRow(agent_id, stored.version + 1, _now(), by, "deleted", None)
            try:
                removal = partial(remove_agent, self._store, revision)
                await self._record_change("deleted", agent_id, stored.agent, None, removal)
            except ConstraintError:
                continue
            return
        raise _stale(agent_id)

    async def clone(self, agent_id: str, given: "AgentChanges", *, by: str) -> StoredAgent:
        """Create a copy of this agent with the named fields changed, without its brain.

        Starters can be cloned even after they were deleted.
        """
        try:
            source = (await self.get(agent_id)).agent
        except NotFound:
            starter = next((agent for agent in STARTERS if agent.id == agent_id), None)
            if starter is None:
                raise
            source = starter
        shape = (
            source.to_json()
            | {"id": None, "name": f"{source.name[:190]} (copy)"}
            | agent_input.named(given, agent_input.READ_ONLY)
        )
        return await self.create(parse(agent_input.AgentInput, shape), by=by)

    async def revisions(self, agent_id: str) -> Sequence[Revision]:
        """Return the latest revisions of an agent, newest first, even if it was deleted."""
        rows = await read_revisions(self._store, agent_id, MOST_REVISIONS)
        if not rows:
            raise unknown_agent(agent_id)
        return [_revision(row) for row in rows]

    async def revision(self, agent_id: str, version: int) -> Revision:
        """Return one revision of an agent."""
        row = await read_revision(self._store, agent_id, version)
        if row is None:
            raise NotFound("agent.revision_unknown", f"Agent '{agent_id}' never had version {version}.")
        return _revision(row)

    async def restore(self, agent_id: str, version: int, *, by: str) -> StoredAgent:
        """Restore an agent's version as a new revision; a deleted agent returns without its brain."""
        agent = (await self.revision(agent_id, version)).agent
        if agent is None:
            message = f"Version {version} of agent '{agent_id}' is its deletion."
            raise NotFound("agent.revision_unknown", message, "Restore the version before it.")
        try:
            return await self._change(agent_id, lambda _: agent, None, by, "restored")
        except NotFound:
            pass  # it was deleted, so it is created again
        try:
            return await self._add(agent, by, None, "restored")
        except ConstraintError:
            raise _stale(agent_id) from None

    async def _add(
        self, agent: Agent, by: str, given: "AgentInput | None", kind: RevisionKind = "created"
    ) -> StoredAgent:
        version = await last_version(self._store, agent.id) + 1
        index, revision = _rows(agent, version, _now(), by, kind)
        entries = [new_entry(agent.id, entry, "manual") for entry in (given.brain_entries if given else ())]
        rows = [row_of(entry, 1) for entry in entries]
        addition = partial(add_agents, self._store, [(index, revision)], rows)
        await self._record_change(kind, agent.id, None, agent, addition)
        return StoredAgent(agent, version, revision.at, revision.at)

    async def _change(
        self,
        agent_id: str,
        make: Callable[[Agent], Agent],
        version: int | None,
        by: str,
        kind: RevisionKind = "changed",
    ) -> StoredAgent:
        for _ in range(TRIES):
            stored = await self.get(agent_id)
            _check_version(stored, version)
            agent = make(stored.agent)
            if agent == stored.agent:
                return stored
            index, revision = _rows(agent, stored.version + 1, _now(), by, kind)
            try:
                replacement = partial(change_agent, self._store, index, revision)
                await self._record_change(kind, agent_id, stored.agent, agent, replacement)
            except ConstraintError:
                continue
            return StoredAgent(agent, index.version, stored.created_at, index.updated_at)
        raise _stale(agent_id)


def _rows(agent: Agent, version: int, at: str, by: str, kind: RevisionKind) -> tuple[IndexRow, RevisionRow]:
    index = IndexRow(agent.id, agent.name, agent.description, version, 0, at, dumps(grants(agent)))
    return index, RevisionRow(agent.id, version, at, by, kind, dumps(agent.to_json()))


def _parse_row(row: AgentRow | None, agent_id: str) -> StoredAgent:
    if row is None:
        raise unknown_agent(agent_id)
    return StoredAgent(Agent.of_json(loads(row.body)), row.version, row.created_at, row.updated_at)


def _revision(row: RevisionRow) -> Revision:
    agent = Agent.of_json(loads(row.body)) if row.body is not None else None
    return Revision(row.version, row.at, row.author, row.kind, agent)


def _event(agent_id: str, old: IndexRow | None, new: IndexRow | None) -> JsonObject:
    row = new or old
    assert row is not None
    if old is None or new is None:
        change = "deleted" if new is None else "created"
    else:
        change = "changed" if old.version != new.version else "brain"
    return {"agentId": agent_id, "name": row.name, "change": change, "version": row.version}


def _check_version(stored: StoredAgent, version: int | None) -> None:
    if version not in (None, stored.version):
        raise _stale(stored.agent.id, stored.version)


def _stale(agent_id: str, version: int | None = None) -> Conflict:
    now = f"; its version is now {version}" if version is not None else ""
    return Conflict("request.stale", f"Agent '{agent_id}' was changed since it was read{now}.")


def _now() -> str:
    return moment(datetime.now(UTC).isoformat())


def _change_of(agent_id: str, before: Agent | None, after: Agent | None) -> JsonObject:
    """Describe a change for the audit: permissions before and after, and the names of all changed fields.

    `before` is None for a creation, `after` for a deletion. Prompts and skill texts are in the agent's revisions.
    """
    old, new = _permissions(before), _permissions(after)
    changed: JsonObject = {"id": agent_id}
    if before is not None and after is not None:
        was, will = before.to_json(), after.to_json()
        changed["fields"] = sorted(key for key in {*was, *will} if was.get(key) != will.get(key))
        same = {key for key in old if old[key] == new.get(key)}
        old, new = _without(old, same), _without(new, same)
    if before is not None:
        changed["before"] = old
    if after is not None:
        changed["after"] = new
    return changed


def _permissions(agent: Agent | None) -> JsonObject:
    """Return the fields that decide what an agent may do."""
    if agent is None:
        return {}
    return {
        "toolPermissions": None if agent.tool_permissions is None else list(agent.tool_permissions),
        "mode": agent.mode,
        "includeBrain": agent.include_brain,
        "skillTools": {skill.id: list(skill.tools) for skill in agent.skills if skill.enabled and skill.tools},
    }


def _without(shape: JsonObject, keys: set[str]) -> JsonObject:
    return {key: value for key, value in shape.items() if key not in keys}
