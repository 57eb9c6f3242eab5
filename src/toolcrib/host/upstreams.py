"""The side of a crib that has upstream servers: found, agreed to, connected, and their tools in the catalog.

Above: `crib` opens it before its agents, which need its tools. Below: `servers`, `connect` and the intake of `gate`. It
must never reach for a part of the crib that it was not given.
"""

import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from toolcrib.catalog.catalog import Catalog
from toolcrib.config.secrets import SecretCommands
from toolcrib.connect import Ground, Hello, Pool, Processes, Shelf, SignIns, open_tokens, open_web
from toolcrib.connect.web import Web
from toolcrib.feed import Feed
from toolcrib.gate import Gate, Intake
from toolcrib.home import Home
from toolcrib.host.names import keep_names
from toolcrib.model.principals import Principal
from toolcrib.model.servers import Discovery, ServerEntry
from toolcrib.model.sources import Introduction
from toolcrib.policy.pins import Pins
from toolcrib.principals import Principals, Tokens
from toolcrib.servers import Clients, Links, Reach, Servers
from toolcrib.settings import Environment
from toolcrib.store import Store, load_offers, save_offers
from toolcrib.version import __version__


@dataclass(frozen=True, slots=True)
class UpstreamFooting:
    """What upstream servers stand on. `eager` connects those at once of which nothing is known yet."""

    environment: Environment
    home: Home
    user_home: Path
    store: Store
    feed: Feed
    tasks: TaskGroup
    catalog: Catalog
    gate: Gate
    principals: Principals
    tokens: Tokens
    reach: Reach
    eager: bool
    port: Callable[[], int]


class Upstreams:
    """Servers and what becomes of them: opened by `open`, closed with its stack."""

    def __init__(self, footing: UpstreamFooting) -> None:
        self._footing = footing
        self._places: dict[str, str] = {}
        self.pins = Pins(footing.store, is_person=footing.principals.is_person)
        self.intake = Intake(
            footing.catalog, self.pins, lambda place: self.pool.sources(place), partial(keep_names, footing.store)
        )
        self.servers = Servers(
            footing.home, footing.environment, footing.user_home, footing.feed.publish, on_view=self._on_view
        )
        self.clients = Clients(self.servers, footing.tokens, footing.reach)
        self.processes: Processes
        self.web: Web
        self.pool: Pool
        self.links: Links

    async def open(self, stack: AsyncExitStack) -> None:
        """Find all servers, take up what is known of them, and follow what changes."""
        footing, home = self._footing, self._footing.home
        await self.pins.load()
        self.processes = await stack.enter_async_context(Processes(footing.environment, home.marker, home.processes))
        self.web = await open_web()
        ground = Ground(
            processes=self.processes,
            web=self.web,
            tokens=await open_tokens(home.credentials),
            environment=footing.environment,
            commands=SecretCommands(footing.environment),
            hello=Hello({"name": "toolcrib", "title": "Toolcrib", "version": __version__}),
        )
        self.pool = await stack.enter_async_context(
            Pool(
                ground,
                Shelf(partial(load_offers, footing.store), partial(save_offers, footing.store)),
                on_sources=self.intake.changed,
                on_status=self._on_status,
                own_url=self._own_url,
                eager=footing.eager,
            )
        )
        sign_ins = await stack.enter_async_context(SignIns(ground.web, ground.tokens))
        self.links = Links(self.servers, self.pool, ground, sign_ins, self._settle)
        await self.servers.list()
        await self.intake.take(None)
        footing.tasks.start_soon(self.intake.follow)
        footing.tasks.start_soon(self.servers.follow)

    async def placed(self, principal: Principal) -> Principal:
        """The same asker, by the real path of its directory, whose servers are known from now on."""
        if principal.cwd is None:
            return principal
        place = self._places.get(principal.cwd)
        if place is None:
            place = await anyio.to_thread.run_sync(os.path.realpath, principal.cwd)
            await self.servers.list(Path(place))
            await self.intake.take(Path(place))
            self._places[principal.cwd] = place
        return principal if place == principal.cwd else replace(principal, cwd=place)

    async def ready(self, principal: Principal, server: str) -> None:
        """See to it that what a server offers is known, if there is one of that name; connects it if need be.

        Raises `Unavailable` (`server.failed`) where that does not work.
        """
        place = path_of(principal.cwd)
        source = self.pool.find(server, place)
        if source is None:
            return
        if source.offer is None:
            await source.link.ensure()
        if not self.intake.is_taken(place, source):
            await self.intake.take(place)  # it would be done in a moment, and is needed now

    def introduction(self, principal: Principal, server: str) -> Introduction | None:
        """What a server says of itself; None where there is none of that name for this asker."""
        if server not in self._footing.gate.servers(principal):
            return None
        source = self.pool.find(server, path_of(principal.cwd))
        offer = source.offer if source is not None else None
        return Introduction(offer.capabilities, offer.server_info, offer.instructions) if offer else Introduction()

    async def note(self, server: str, cwd: str | None) -> str | None:
        """What is wrong with a server, seen from this directory, if something is."""
        return await self.links.note(server, path_of(cwd))

    def _own_url(self) -> str | None:
        port = self._footing.port()
        return f"http://127.0.0.1:{port}" if port else None

    def _on_view(self, cwd: Path | None, discovery: Discovery | None) -> None:
        if discovery is not None:
            self.pool.reconcile(cwd, discovery)
        elif cwd is not None:
            self.pool.drop(cwd)
            self._footing.catalog.forget(str(cwd))
            self._places = {asked: place for asked, place in self._places.items() if place != str(cwd)}

    def _on_status(self, entry: ServerEntry) -> None:
        self._footing.feed.publish("server_changed", self.links.standing(entry).news())

    async def _settle(self, cwd: Path | None) -> None:
        place = Path(await anyio.Path(cwd).resolve()) if cwd is not None else None
        await self.intake.take(place)


def path_of(cwd: str | None) -> Path | None:
    """A directory as the parts that read files want it."""
    return Path(cwd) if cwd is not None else None
