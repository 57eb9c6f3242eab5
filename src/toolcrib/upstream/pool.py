"""All upstreams of a crib. Compares wanted with running servers and acts only on the difference.

Each project, or None, declares which servers it wants; equal definitions share an upstream. A server whose offer is
known from an earlier run shows it at once and connects on first use. Others connect at startup, a few at a time.

Must never connect a server that no project wants: what may be started is decided elsewhere.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup

from toolcrib.model.apps import HOSTS_APPS
from toolcrib.model.errors import ToolcribError, Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.model.servers import Discovery, ServerEntry, ServerSpec, UpstreamStatus
from toolcrib.model.sources import Client, Notice
from toolcrib.upstream.confinement import Confinement
from toolcrib.upstream.handshake import ClientIntroduction
from toolcrib.upstream.oauth.demand import NO_DEMAND, Demand
from toolcrib.upstream.offer import Offer
from toolcrib.upstream.opener import Opener, OpenerDeps, placement_key
from toolcrib.upstream.plan import (
    DefinitionNames,
    ProjectPath,
    UpstreamKey,
    key_of,
    merge_wanted,
    not_startable,
    plan,
    spec_of,
)
from toolcrib.upstream.protocol_log import LoggedMessage
from toolcrib.upstream.sandbox_grants import SandboxDeps
from toolcrib.upstream.session_connections import SessionUpstreams
from toolcrib.upstream.source import UpstreamSource
from toolcrib.upstream.start_limit import StartLimit
from toolcrib.upstream.upstream import ClientSession, Upstream, UpstreamHooks

logger = logging.getLogger(__name__)

_NOTICES = frozenset(
    {
        "resources/updated",
        "message",
        "elicitation/complete",
        "tools/list_changed",
        "prompts/list_changed",
        "resources/list_changed",
    }
)
"""Notifications passed on to listeners. `list_changed` follows once the list has been read again."""

_ALL_CAPABILITIES: JsonObject = {"roots": {}, "sampling": {}, "elicitation": {"form": {}, "url": {}}, **HOSTS_APPS}
"""The capabilities that any client of the crib may have, used to list a server that is not shared.

A server may hide tools from clients that lack a capability. The crib lists such tools for every client, so that they
are pinned and checked once. Whether a client can use one depends on the capabilities its own connection announces.
"""

_SAVED_AFTER = 0.1
"""Seconds for which changed offers are collected, so that servers starting together are saved in one write."""


@dataclass(frozen=True, slots=True)
class OfferStore:
    """Persistence of offers between runs: loads all of them by key, saves some of them."""

    load: Callable[[], Awaitable[Mapping[str, bytes]]]
    save: Callable[[Mapping[str, bytes]], Awaitable[None]]


@dataclass(slots=True)
class _PooledUpstream:
    """A definition that has an upstream."""

    upstream: Upstream
    sessions: SessionUpstreams | None
    entries: dict[str, ServerEntry]


class Pool:
    """The upstreams of one crib. Use as `async with Pool(…) as pool`; leaving the block closes all of them."""

    def __init__(
        self,
        deps: OpenerDeps,
        store: OfferStore,
        *,
        own_url: Callable[[], str | None] = lambda: None,
        eager: bool = True,
    ) -> None:
        self._deps = deps
        self._store = store
        self._on_sources: Callable[[ProjectPath], None] = lambda _: None
        self._on_status: Callable[[ServerEntry], None] = lambda _: None
        self._own_url = own_url
        self._eager = eager
        self._is_halted = False
        self._starts = StartLimit()
        self._stored: dict[str, bytes] = {}
        self._unsaved: dict[str, bytes] = {}
        self._wanted: dict[ProjectPath, dict[str, ServerEntry]] = {}
        self._names = DefinitionNames()
        self._pooled: dict[UpstreamKey, _PooledUpstream] = {}
        self._sources: dict[ProjectPath, tuple[UpstreamSource, ...]] = {}
        self._listeners: set[Callable[[Notice], None]] = set()
        self._changed: set[ProjectPath] = set()
        self._tasks: TaskGroup = anyio.create_task_group()

    async def __aenter__(self) -> Self:
        try:
            self._stored = dict(await self._store.load())
        except ToolcribError as error:
            logger.warning("Could not load the stored offers of servers: %s", error)
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._tasks.cancel_scope.cancel()
        return await self._tasks.__aexit__(kind, error, trace)

    def watch(self, *, on_sources: Callable[[ProjectPath], None], on_status: Callable[[ServerEntry], None]) -> None:
        """Call `on_sources` with each project whose sources or offers changed, `on_status` with each changed server."""
        self._on_sources = on_sources
        self._on_status = on_status

    def reconcile(self, place: ProjectPath, discovery: Discovery) -> None:
        """Set the servers wanted in a project. Their own tasks start and stop them."""
        self._wanted[place] = {entry.alias: entry for entry in discovery.startable()}
        self._names.set(place, discovery)
        self._reconcile()

    def drop(self, place: ProjectPath) -> None:
        """Forget a project."""
        self._names.drop(place)
        if self._wanted.pop(place, None) is not None:
            self._reconcile()

    def halt(self) -> None:
        """Close every connection and cancel every attempt, but keep the known offers. `resume` reverts this."""
        self._is_halted = True
        for key, pooled in tuple(self._pooled.items()):
            self._stop(pooled)
            fresh = self._pooled[key] = self._open(key, next(iter(pooled.entries.values())))
            fresh.entries.update(pooled.entries)
        self._update_sources()

    def resume(self) -> None:
        """Allow connections again, and connect as after startup."""
        self._is_halted = False
        for pooled in self._pooled.values():
            if self._eager and pooled.upstream.offer is None:
                pooled.upstream.start()

    def sources(self, place: ProjectPath = None) -> tuple[UpstreamSource, ...]:
        """Return the servers visible in a project as sources of the catalog, including those of no project."""
        return self._sources.get(place, ())

    def find(self, alias: str, place: ProjectPath = None) -> UpstreamSource | None:
        """Return one server of a project, by its name there or by another name of its definition."""
        sources = self.sources(place)
        also = (source for source in sources if source.server_names.matching(alias) is not None)
        return next((source for source in sources if source.name == alias), None) or next(also, None)

    def placed(self, key: str) -> Upstream | None:
        """Return the server with this `placement_key` that runs on one node at a time."""
        for pooled in self._pooled.values():
            spec = pooled.upstream.spec
            if spec.placement == "one" and placement_key(spec) == key:
                return pooled.upstream
        return None

    def listen(self, callback: Callable[[Notice], None]) -> Callable[[], None]:
        """Subscribe to notifications of servers. Returns a function that unsubscribes."""
        self._listeners.add(callback)
        return partial(self._listeners.discard, callback)

    def status(self, entry: ServerEntry) -> UpstreamStatus:
        """Return the status of a server's upstream."""
        pooled = self._pooled.get(key_of(entry)) if entry.spec is not None else None
        return pooled.upstream.status if pooled is not None else UpstreamStatus()

    def protocol_log(self, entry: ServerEntry) -> tuple[LoggedMessage, ...]:
        """Return a server's recent protocol messages, newest first, including those of per-session connections."""
        pooled = self._pooled.get(key_of(entry)) if entry.spec is not None else None
        return pooled.upstream.protocol_log.entries() if pooled is not None else ()

    async def test(self, entry: ServerEntry) -> UpstreamStatus:
        """Connect a server now, or ping and re-list a connected one."""
        return await self._upstream(entry).check()

    def cancel(self, entry: ServerEntry) -> bool:
        """Cancel an attempt to connect a server. Returns whether there was one."""
        pooled = self._pooled.get(key_of(entry)) if entry.spec is not None else None
        return pooled is not None and pooled.upstream.cancel()

    async def ensure(self, entry: ServerEntry) -> Offer:
        """Return what a server offers, connecting it if that is unknown. Raises if it cannot be connected."""
        return await self._upstream(entry).ensure()

    async def reload(self, entry: ServerEntry | None = None) -> None:
        """Restart a server; without one, retry only those that failed."""
        if entry is not None:
            upstream = self._upstream(entry)
            upstream.restart()
            await upstream.check()
            return
        for pooled in self._pooled.values():
            if pooled.upstream.status.state in ("failed", "needs_auth"):
                pooled.upstream.restart()

    def restart_if(self, condition: Callable[[ServerSpec], bool]) -> tuple[str, ...]:
        """Restart the servers whose definition meets a condition and that run or failed; return their names."""
        names: list[str] = []
        for pooled in self._pooled.values():
            entry = next(iter(pooled.entries.values()))
            if entry.spec is None or not condition(entry.spec):
                continue
            others = pooled.sessions.upstreams() if pooled.sessions is not None else ()
            used = [each for each in (pooled.upstream, *others) if each.status.state != "not_checked"]
            for upstream in used:
                upstream.restart()
            names += [entry.name] if used else []
        return tuple(names)

    def demand(self, entry: ServerEntry) -> Demand:
        """Return the authorization requirement from a server's last rejection, including per-session connections."""
        demands = [self._upstream(entry).demand]
        if (sessions := self._pooled[key_of(entry)].sessions) is not None:
            demands += [upstream.demand for upstream in sessions.upstreams()]
        scopes = dict.fromkeys(scope for demand in demands for scope in demand.scopes)
        challenges = [demand.challenge for demand in demands if demand.challenge != NO_DEMAND.challenge]
        return Demand(tuple(scopes), challenges[-1] if challenges else NO_DEMAND.challenge)

    async def signed_in(self, entry: ServerEntry) -> None:
        """Reconnect a server after a sign-in or sign-out, including per-session connections."""
        await self._upstream(entry).signed_in()
        if (sessions := self._pooled[key_of(entry)].sessions) is not None:
            for upstream in sessions.upstreams():
                await upstream.signed_in()

    def end_session(self, session: str) -> None:
        """Close the connections and drop the subscriptions of an MCP session."""
        for pooled in self._pooled.values():
            unwanted = pooled.upstream.subscribed.forget(session)
            if unwanted:
                self._tasks.start_soon(pooled.upstream.drop, unwanted)
            if pooled.sessions is not None:
                pooled.sessions.end(session)

    def _upstream(self, entry: ServerEntry) -> Upstream:
        if not entry.startable:
            raise not_startable(entry)
        pooled = self._pooled.get(key_of(entry))
        if pooled is None:
            raise Unavailable("server.ended", f'Server "{entry.name}" is not used in any open project.')
        return pooled.upstream

    def _reconcile(self) -> None:
        """Start and stop upstreams until they match what is wanted."""
        todo = plan(self._wanted, self._pooled.keys())
        for key in todo.stop:
            self._stop(self._pooled.pop(key))
        for key, entry in todo.start.items():
            self._pooled[key] = self._open(key, entry)
        for pooled in self._pooled.values():
            pooled.entries.clear()
        for entry in merge_wanted(self._wanted):
            pooled = self._pooled[key_of(entry)]
            pooled.entries.setdefault(entry.alias, entry)
        for pooled in self._pooled.values():
            pooled.upstream.spec = spec_of(next(iter(pooled.entries.values())))
        self._update_sources()

    def _update_sources(self) -> None:
        """Build a source for each server of each project, reusing unchanged ones."""
        known = {_source_key(source): source for sources in self._sources.values() for source in sources}
        before, self._sources = self._sources, {}
        for place, entries in self._wanted.items():
            found: list[UpstreamSource] = []
            for alias, entry in entries.items():
                pooled, spec = self._pooled[key_of(entry)], spec_of(entry)
                made = UpstreamSource(pooled.upstream, alias, spec, pooled.sessions, self._names.of(place, entry))
                found.append(known.setdefault(_source_key(made), made))
            self._sources[place] = tuple(found)
        for place in {*before, *self._sources}:
            if before.get(place) != self._sources.get(place):
                self._mark_changed(place)

    def _open(self, key: UpstreamKey, entry: ServerEntry) -> _PooledUpstream:
        spec = spec_of(entry)
        stored = self._stored.get(entry.digest)
        offer = Offer.from_json(stored) if stored is not None else None
        hooks = UpstreamHooks(
            partial(self._status_changed, key),
            partial(self._offer_changed, key),
            partial(self._on_notification, key, None),
        )
        is_shared = spec.share == "shared" or spec.placement == "one"
        hello = None if is_shared else ClientIntroduction(self._deps.hello.client_info, _ALL_CAPABILITIES)
        confinement = Confinement(spec, self._sandbox_deps, hooks.status)
        opener = Opener(self._deps, spec, self._own_url, hello, confinement)
        upstream = Upstream(self._deps, spec, opener, confinement, self._starts, hooks, offer=offer)
        self._tasks.start_soon(upstream.run)
        if self._eager and offer is None and not self._is_halted:
            upstream.start()
        sessions = None if is_shared else SessionUpstreams(partial(self._open_session, key, spec))
        return _PooledUpstream(upstream, sessions, {})

    def _open_session(
        self, key: UpstreamKey, spec: ServerSpec, client: Client, session: ClientSession, on_end: Callable[[], None]
    ) -> Upstream:
        """Open an upstream for one MCP session."""
        own_hello = self._deps.hello
        hello = ClientIntroduction(client.info or own_hello.client_info, client.capabilities)
        hooks = UpstreamHooks(lambda: None, lambda _: None, partial(self._on_notification, key, session.name))
        shared = self._pooled[key].upstream if key in self._pooled else None
        protocol_log = shared.protocol_log if shared is not None else None
        confinement = shared.confinement if shared is not None else Confinement(spec, self._sandbox_deps, hooks.status)
        opener = Opener(self._deps, spec, self._own_url, hello, confinement)
        upstream = Upstream(
            self._deps, spec, opener, confinement, self._starts, hooks, session=session, protocol_log=protocol_log
        )

        async def run() -> None:
            await upstream.run()
            on_end()

        self._tasks.start_soon(run)
        return upstream

    @property
    def _sandbox_deps(self) -> SandboxDeps | None:
        deps = self._deps
        return SandboxDeps(deps.sandboxes, deps.environment) if deps.sandboxes is not None else None

    @staticmethod
    def _stop(pooled: _PooledUpstream) -> None:
        pooled.upstream.stop()
        if pooled.sessions is not None:
            pooled.sessions.stop()

    def _status_changed(self, key: UpstreamKey) -> None:
        pooled = self._pooled.get(key)
        for entry in tuple(pooled.entries.values()) if pooled is not None else ():
            self._on_status(entry)

    def _offer_changed(self, key: UpstreamKey, offer: Offer) -> None:
        pooled = self._pooled.get(key)
        for alias in pooled.entries if pooled is not None else ():
            for place, entries in self._wanted.items():
                if alias in entries and key_of(entries[alias]) == key:
                    self._mark_changed(place)
        body = offer.to_json()
        if self._stored.get(key.digest) != body:
            self._stored[key.digest] = body
            self._unsaved[key.digest] = body
            if len(self._unsaved) == 1:
                self._tasks.start_soon(self._save)

    async def _save(self) -> None:
        """Save changed offers in batches, also when the pool is closed."""
        try:
            await anyio.sleep(_SAVED_AFTER)
        finally:
            with anyio.CancelScope(shield=True):
                unsaved, self._unsaved = self._unsaved, {}
                try:
                    await self._store.save(unsaved)
                except ToolcribError as error:
                    logger.warning("Could not store the offers of servers: %s", error)

    def _on_notification(self, key: UpstreamKey, session: str | None, method: str, params: JsonObject) -> None:
        kind, pooled = method.removeprefix("notifications/"), self._pooled.get(key)
        if kind not in _NOTICES or pooled is None:
            return
        for alias in tuple(pooled.entries):
            for callback in tuple(self._listeners):
                callback(Notice(kind, alias, params, session))

    def _mark_changed(self, place: ProjectPath) -> None:
        """Report a changed project, once per iteration of the event loop."""
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._report_changed)
        self._changed.add(place)

    def _report_changed(self) -> None:
        changed, self._changed = self._changed, set()
        for place in changed:
            self._on_sources(place)


def _source_key(source: UpstreamSource) -> tuple[object, ...]:
    """Return the key by which two sources are interchangeable."""
    return id(source.upstream), source.name, source.server_names, source.spec.tools, source.spec.timeout_ms
