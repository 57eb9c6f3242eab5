"""The half of a crib that manages upstream servers: discovery, trust, connections, and their tools in the catalog.

Must never use a part of the crib that is not in its dependencies.
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

from toolcrib.base.feed import Feed
from toolcrib.base.home import Home
from toolcrib.base.masking.known import KnownSecrets
from toolcrib.base.network.web import Web, open_web
from toolcrib.base.processes.process import Processes
from toolcrib.base.settings import Environment
from toolcrib.base.stop_switch import StopSwitch
from toolcrib.gate.catalog.catalog import Catalog
from toolcrib.gate.gate import Gate
from toolcrib.gate.pins.intake import Intake
from toolcrib.gate.pins.pins import Pins
from toolcrib.gate.principals import NamedTokens, Principals
from toolcrib.host.names import keep_names
from toolcrib.model.changes import ChangeRecorder
from toolcrib.model.errors import ToolcribError
from toolcrib.model.principals import Principal
from toolcrib.model.servers import Discovery, ServerEntry
from toolcrib.model.sources import Introduction
from toolcrib.model.tools import ToolRef
from toolcrib.model.version import __version__
from toolcrib.servers.apps.apps import AppDeps, Apps
from toolcrib.servers.exposure import literal_secrets
from toolcrib.servers.secret_commands import SecretCommands
from toolcrib.servers.servers import Servers
from toolcrib.store.engine import Store
from toolcrib.store.offers import load_offers, save_offers
from toolcrib.upstream.credentials import open_credentials
from toolcrib.upstream.handshake import ClientIntroduction
from toolcrib.upstream.opener import OpenerDeps
from toolcrib.upstream.operations import UpstreamOperations
from toolcrib.upstream.plan import not_startable
from toolcrib.upstream.pool import OfferStore, Pool
from toolcrib.upstream.sign_ins import SignIns


@dataclass(frozen=True, slots=True)
class UpstreamDeps:
    """Dependencies of the upstreams. With `eager`, servers whose offer is unknown connect at startup."""

    environment: Environment
    home: Home
    user_home: Path
    store: Store
    feed: Feed
    tasks: TaskGroup
    catalog: Catalog
    gate: Gate
    changes: ChangeRecorder
    stop_switch: StopSwitch
    principals: Principals
    tokens: NamedTokens
    reach: AppDeps
    eager: bool
    client_document: str | None
    port: Callable[[], int]
    secrets: KnownSecrets


class Upstreams:
    """Servers and their connections. `open` opens them, and its stack closes them."""

    def __init__(self, deps: UpstreamDeps) -> None:
        self._deps = deps
        self._places: dict[str, str] = {}
        self.pins = Pins(deps.store, is_person=deps.principals.is_person)
        self.intake = Intake(
            deps.catalog, self.pins, lambda place: self.pool.sources(place), partial(keep_names, deps.store)
        )
        self.servers = Servers(
            deps.home,
            deps.environment,
            deps.user_home,
            deps.feed.publish,
            deps.changes,
            on_view=self._on_view,
        )
        self.clients = Apps(self.servers, deps.tokens, deps.reach)
        self.processes: Processes
        self.web: Web
        self.pool: Pool
        self.links: UpstreamOperations

    async def open(self, stack: AsyncExitStack) -> None:
        """Discover all servers, load what is known of them, and follow changes."""
        deps, home = self._deps, self._deps.home
        await self.pins.load()
        self.processes = await stack.enter_async_context(Processes(deps.environment, home.marker, home.processes))
        self.web = await open_web()
        opener_deps = OpenerDeps(
            processes=self.processes,
            web=self.web,
            tokens=await open_credentials(home.credentials, deps.secrets),
            environment=deps.environment,
            commands=SecretCommands(deps.environment),
            hello=ClientIntroduction({"name": "toolcrib", "title": "Toolcrib", "version": __version__}),
            client_document=deps.client_document,
            may_open=deps.stop_switch.check,
            secrets=deps.secrets,
        )
        self.pool = await stack.enter_async_context(
            Pool(
                opener_deps,
                OfferStore(partial(load_offers, deps.store), partial(save_offers, deps.store)),
                on_sources=self.intake.changed,
                on_status=self._on_status,
                own_url=self._own_url,
                eager=deps.eager,
            )
        )
        if deps.stop_switch.is_stopped:
            self.pool.halt()
        sign_ins = await stack.enter_async_context(SignIns(opener_deps.web, opener_deps.tokens))
        self.links = UpstreamOperations(self.servers, self.pool, opener_deps, sign_ins, self._settle)
        await self.servers.list()
        await self.intake.take(None)
        deps.tasks.start_soon(self.intake.follow)
        deps.tasks.start_soon(self.servers.follow)

    async def placed(self, principal: Principal) -> Principal:
        """Return the principal with the real path of its directory, after discovering the servers there."""
        if principal.cwd is None:
            return principal
        place = self._places.get(principal.cwd)
        if place is None:
            place = await anyio.to_thread.run_sync(os.path.realpath, principal.cwd)
            await self.servers.list(Path(place))
            await self.intake.take(Path(place))
            self._places[principal.cwd] = place
        return principal if place == principal.cwd else replace(principal, cwd=place)

    async def ready(self, principal: Principal, server: str, tool: str | None = None) -> None:
        """Ensure that a server's offer is known, connecting it if needed.

        Does nothing if the principal may not know of the server or tool, because that would reveal whether the server
        exists or fails. Raises an `Unavailable` with the server's own code if it cannot be connected.
        """
        place = path_of(principal.cwd)
        source = self.pool.find(server, place)
        if source is None or not self._deps.gate.may_know(principal, server, tool):
            return
        if source.offer is None:
            await source.upstream.ensure()
        if not self.intake.is_taken(place, source):
            await self.intake.take(place)  # would happen soon anyway, but is needed now

    async def absence(self, principal: Principal, ref: ToolRef) -> ToolcribError | None:
        """Return the error for a tool whose server is disabled. `why` and `mcp list` explain other reasons."""
        discovery = await self.servers.list(path_of(principal.cwd))
        entry = discovery.find(ref.server)
        return not_startable(entry) if entry is not None and entry.state == "disabled" else None

    def introduction(self, principal: Principal, server: str) -> Introduction | None:
        """Return a server's introduction, or None if the principal has no server of that name."""
        server = self._deps.gate.server(principal, server)
        if server not in self._deps.gate.servers(principal):
            return None
        source = self.pool.find(server, path_of(principal.cwd))
        said = self.intake.introduction(source) if source is not None else None
        return said if said is not None else Introduction()

    def health(self, server: str, cwd: str) -> str:
        """Return a server's state as seen from a directory. An in-process server is always connected."""
        found = self.pool.find(server, path_of(cwd)) or self.pool.find(server)
        return found.status.state if found is not None else "connected"

    async def note(self, server: str, cwd: str | None) -> str | None:
        """Return what is wrong with a server as seen from a directory, or None.

        An in-process server has no definition. A definition of the same name in a file, such as an app's entry for this
        crib, does not describe it.
        """
        place = path_of(cwd)
        is_upstream = self.pool.find(server, place) is not None
        if not is_upstream and server in self._deps.catalog.at(cwd).sources:
            return None
        return await self.links.note(server, place)

    def _own_url(self) -> str | None:
        port = self._deps.port()
        return f"http://127.0.0.1:{port}" if port else None

    def _on_view(self, cwd: Path | None, discovery: Discovery | None) -> None:
        if discovery is not None:
            self._learn_secrets(discovery)
            self.pool.reconcile(cwd, discovery)
        elif cwd is not None:
            self.pool.drop(cwd)
            self._deps.catalog.forget(str(cwd))
            self._places = {asked: place for asked, place in self._places.items() if place != str(cwd)}

    def _learn_secrets(self, discovery: Discovery) -> None:
        """Mask literal secrets before servers start. Untrusted definitions are skipped: they could hide text."""
        for entry in discovery.servers:
            if entry.trusted and entry.spec is not None:
                self._deps.secrets.add(*literal_secrets(entry.spec, self._deps.environment))

    def _on_status(self, entry: ServerEntry) -> None:
        self._deps.feed.publish("server_changed", self.links.status(entry).news())

    async def _settle(self, cwd: Path | None) -> None:
        place = Path(await anyio.Path(cwd).resolve()) if cwd is not None else None
        await self.intake.take(place)


def path_of(cwd: str | None) -> Path | None:
    """Return a directory as a `Path`."""
    return Path(cwd) if cwd is not None else None
