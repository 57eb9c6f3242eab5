"""All links of a crib: what is wanted is compared with what runs, and only the difference is acted on.

Each place (a working directory, or none) says which servers it wants; equal definitions share a link. A server whose
offer is known from before shows it at once and is connected on first use; others are connected at the start, a few at
a time. Whoever needs to know hears of new sources, new states and what servers say by themselves.

Above: `host` makes it and tells it what was found. Below: `link`, `plan`, `upstream`. It must never connect a server
that no place wants: what may be started was decided before.
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

from toolcrib.connect.greet import Hello
from toolcrib.connect.link import Hooks, Link, Session
from toolcrib.connect.offer import Offer
from toolcrib.connect.opening import Ground, Opener
from toolcrib.connect.plan import LinkKey, Place, everybody, key_of, not_startable, plan, spec_of
from toolcrib.connect.sessions import SessionLinks
from toolcrib.connect.starts import Starts
from toolcrib.connect.talk import Said
from toolcrib.connect.upstream import UpstreamSource
from toolcrib.errors import ToolcribError, Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.model.links import LinkStatus
from toolcrib.model.servers import Discovery, ServerEntry, ServerSpec
from toolcrib.model.sources import Client, Notice

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
"""What is passed on of what servers say by themselves: of changed lists after they were read again."""

_SAVED_AFTER = 0.1
"""Seconds in which offers are gathered, so that many servers that start together are not saved one by one."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where offers are kept between runs: all there are by key, and some more."""

    load: Callable[[], Awaitable[Mapping[str, bytes]]]
    save: Callable[[Mapping[str, bytes]], Awaitable[None]]


@dataclass(slots=True)
class _Held:
    """A definition that has a link."""

    link: Link
    sessions: SessionLinks | None
    entries: dict[str, ServerEntry]


class Pool:
    """The links of one crib: `async with Pool(…) as pool`, and all of them are closed at the end.

    `on_sources` is told the places whose sources or offers changed, `on_status` the servers whose state did.
    """

    def __init__(
        self,
        ground: Ground,
        shelf: Shelf,
        *,
        on_sources: Callable[[Place], None] = lambda _: None,
        on_status: Callable[[ServerEntry], None] = lambda _: None,
        own_url: Callable[[], str | None] = lambda: None,
        eager: bool = True,
    ) -> None:
        self._ground = ground
        self._shelf = shelf
        self._on_sources = on_sources
        self._on_status = on_status
        self._own_url = own_url
        self._eager = eager
        self._starts = Starts()
        self._stored: dict[str, bytes] = {}
        self._unsaved: dict[str, bytes] = {}
        self._wanted: dict[Place, dict[str, ServerEntry]] = {}
        self._held: dict[LinkKey, _Held] = {}
        self._sources: dict[Place, tuple[UpstreamSource, ...]] = {}
        self._listeners: set[Callable[[Notice], None]] = set()
        self._changed: set[Place] = set()
        self._tasks: TaskGroup = anyio.create_task_group()

    async def __aenter__(self) -> Self:
        try:
            self._stored = dict(await self._shelf.load())
        except ToolcribError as error:
            logger.warning("What servers offered before cannot be read: %s", error)
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._tasks.cancel_scope.cancel()
        return await self._tasks.__aexit__(kind, error, trace)

    def reconcile(self, place: Place, discovery: Discovery) -> None:
        """Have links for the servers that may be connected in a place; the work is done by their own tasks."""
        self._wanted[place] = {entry.alias: entry for entry in discovery.startable()}
        self._settle()

    def drop(self, place: Place) -> None:
        """A place is of no interest any more."""
        if self._wanted.pop(place, None) is not None:
            self._settle()

    def sources(self, place: Place = None) -> tuple[UpstreamSource, ...]:
        """The servers of a place, those of no project included, as sources of the catalog."""
        return self._sources.get(place, ())

    def find(self, alias: str, place: Place = None) -> UpstreamSource | None:
        """One server of a place, by the name it has there."""
        return next((source for source in self.sources(place) if source.name == alias), None)

    def listen(self, callback: Callable[[Notice], None]) -> Callable[[], None]:
        """Hear what servers say by themselves; call what is returned to hear no more."""
        self._listeners.add(callback)
        return partial(self._listeners.discard, callback)

    def status(self, entry: ServerEntry) -> LinkStatus:
        """Where the link of a server stands."""
        held = self._held.get(key_of(entry)) if entry.spec is not None else None
        return held.link.status if held is not None else LinkStatus()

    def talk(self, entry: ServerEntry) -> tuple[Said, ...]:
        """What was said with a server lately, the newest first; by sessions of their own too."""
        held = self._held.get(key_of(entry)) if entry.spec is not None else None
        return held.link.talk.said() if held is not None else ()

    async def test(self, entry: ServerEntry) -> LinkStatus:
        """Connect a server now, or ask the connected one whether it is there and what it offers."""
        return await self._link(entry).check()

    async def ensure(self, entry: ServerEntry) -> Offer:
        """What a server offers, connecting it if that is not known. Raises why it is not to be had."""
        return await self._link(entry).ensure()

    async def reload(self, entry: ServerEntry | None = None) -> None:
        """Start a server anew; without one, try again those that failed and leave the others alone."""
        if entry is not None:
            link = self._link(entry)
            link.restart()
            await link.check()
            return
        for held in self._held.values():
            if held.link.status.state in ("failed", "needs_auth"):
                held.link.restart()

    async def signed_in(self, entry: ServerEntry) -> None:
        """Somebody signed in to a server, or out of it."""
        await self._link(entry).signed_in()

    def end_session(self, session: str) -> None:
        """A client's session is over: its own connections end, and its wishes are dropped."""
        for held in self._held.values():
            unwanted = held.link.wishes.forget(session)
            if unwanted:
                self._tasks.start_soon(held.link.drop, unwanted)
            if held.sessions is not None:
                held.sessions.end(session)

    def _link(self, entry: ServerEntry) -> Link:
        if not entry.startable:
            raise not_startable(entry)
        held = self._held.get(key_of(entry))
        if held is None:
            raise Unavailable("server.ended", f'Server "{entry.name}" is not wanted in any place that is in use.')
        return held.link

    def _settle(self) -> None:
        """Make what runs what is wanted."""
        todo = plan(self._wanted, self._held.keys())
        for key in todo.stop:
            self._stop(self._held.pop(key))
        for key, entry in todo.start.items():
            self._held[key] = self._hold(key, entry)
        for held in self._held.values():
            held.entries.clear()
        for entry in everybody(self._wanted):
            held = self._held[key_of(entry)]
            held.entries.setdefault(entry.alias, entry)
        for held in self._held.values():
            held.link.spec = spec_of(next(iter(held.entries.values())))
        self._make_sources()

    def _make_sources(self) -> None:
        """A source for each server of each place; one that would be the same as before stays the same."""
        known = {_look(source): source for sources in self._sources.values() for source in sources}
        before, self._sources = self._sources, {}
        for place, entries in self._wanted.items():
            found: list[UpstreamSource] = []
            for alias, entry in entries.items():
                held, spec = self._held[key_of(entry)], spec_of(entry)
                made = UpstreamSource(held.link, alias, spec, held.sessions)
                found.append(known.setdefault(_look(made), made))
            self._sources[place] = tuple(found)
        for place in {*before, *self._sources}:
            if before.get(place) != self._sources.get(place):
                self._touch(place)

    def _hold(self, key: LinkKey, entry: ServerEntry) -> _Held:
        spec = spec_of(entry)
        stored = self._stored.get(entry.digest)
        offer = Offer.from_json(stored) if stored is not None else None
        hooks = Hooks(
            partial(self._status_changed, key), partial(self._offer_changed, key), partial(self._said, key, None)
        )
        link = Link(self._ground, spec, self._opener(spec), self._starts, hooks, offer=offer)
        self._tasks.start_soon(link.run)
        if self._eager and offer is None:
            link.start()
        sessions = SessionLinks(partial(self._open_session, key, spec)) if spec.share == "session" else None
        return _Held(link, sessions, {})

    def _open_session(
        self, key: LinkKey, spec: ServerSpec, client: Client, session: Session, on_end: Callable[[], None]
    ) -> Link:
        """A link of one client's own."""
        ours = self._ground.hello
        hello = Hello(client.info or ours.client_info, client.capabilities)
        hooks = Hooks(lambda: None, lambda _: None, partial(self._said, key, session.name))
        talk = self._held[key].link.talk if key in self._held else None
        link = Link(self._ground, spec, self._opener(spec, hello), self._starts, hooks, session=session, talk=talk)

        async def run() -> None:
            await link.run()
            on_end()

        self._tasks.start_soon(run)
        return link

    def _opener(self, spec: ServerSpec, hello: Hello | None = None) -> Opener:
        return Opener(self._ground, spec, self._own_url, hello)

    @staticmethod
    def _stop(held: _Held) -> None:
        held.link.stop()
        if held.sessions is not None:
            held.sessions.stop()

    def _status_changed(self, key: LinkKey) -> None:
        held = self._held.get(key)
        for entry in tuple(held.entries.values()) if held is not None else ():
            self._on_status(entry)

    def _offer_changed(self, key: LinkKey, offer: Offer) -> None:
        held = self._held.get(key)
        for alias in held.entries if held is not None else ():
            for place, entries in self._wanted.items():
                if alias in entries and key_of(entries[alias]) == key:
                    self._touch(place)
        body = offer.to_json()
        if self._stored.get(key.digest) != body:
            self._stored[key.digest] = body
            self._unsaved[key.digest] = body
            if len(self._unsaved) == 1:
                self._tasks.start_soon(self._save)

    async def _save(self) -> None:
        """Keep what servers offer, together for all that come at about the same time; also when the pool is closed."""
        try:
            await anyio.sleep(_SAVED_AFTER)
        finally:
            with anyio.CancelScope(shield=True):
                unsaved, self._unsaved = self._unsaved, {}
                try:
                    await self._shelf.save(unsaved)
                except ToolcribError as error:
                    logger.warning("What servers offer could not be kept for the next start: %s", error)

    def _said(self, key: LinkKey, session: str | None, method: str, params: JsonObject) -> None:
        kind, held = method.removeprefix("notifications/"), self._held.get(key)
        if kind not in _NOTICES or held is None:
            return
        for alias in tuple(held.entries):
            for callback in tuple(self._listeners):
                callback(Notice(kind, alias, params, session))

    def _touch(self, place: Place) -> None:
        """Tell of a changed place, once for all that changes in one turn of the loop."""
        if not self._changed:
            asyncio.get_running_loop().call_soon(self._tell_changed)
        self._changed.add(place)

    def _tell_changed(self) -> None:
        changed, self._changed = self._changed, set()
        for place in changed:
            self._on_sources(place)


def _look(source: UpstreamSource) -> tuple[object, ...]:
    """What two sources have in common that are the same."""
    return id(source.link), source.name, source.spec.tools, source.spec.timeout_ms
