"""The part of a crib that manages upstream servers: discovery, trust, connections, and their tools in the catalog.

All parts are built in order; `open` then connects them.
"""

import os
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from toolcrib.base.lazy_modules import lazy_module
from toolcrib.base.network.web import Web
from toolcrib.base.processes.process import Processes
from toolcrib.gate.pins.intake import Intake
from toolcrib.gate.pins.lint import lint_text
from toolcrib.gate.pins.pins import Pins
from toolcrib.host.context import CribContext
from toolcrib.host.gate import GateParts
from toolcrib.host.names import keep_names
from toolcrib.model.apps import HOSTS_APPS
from toolcrib.model.principals import Principal
from toolcrib.model.servers import Discovery, ServerEntry, ServerSpec
from toolcrib.model.sources import Introduction
from toolcrib.model.version import __version__
from toolcrib.nodes.server_leases import ServerLeases
from toolcrib.servers.crib_entry import own_command
from toolcrib.servers.exposure import literal_secrets
from toolcrib.servers.secret_commands import SecretCommands
from toolcrib.servers.variables import spec_references
from toolcrib.store.offers import load_offers, save_offers
from toolcrib.upstream.credentials import CredentialStore
from toolcrib.upstream.handshake import ClientIntroduction
from toolcrib.upstream.opener import OpenerDeps
from toolcrib.upstream.operations import UpstreamOperations
from toolcrib.upstream.placed_servers import PlacedServers
from toolcrib.upstream.pool import OfferStore, Pool
from toolcrib.upstream.sign_ins import SignIns

if TYPE_CHECKING:
    from toolcrib.servers.apps import apps
    from toolcrib.servers.apps.apps import AppDeps, Apps
    from toolcrib.servers.registry import registry
    from toolcrib.servers.registry.registry import Registry
    from toolcrib.servers.secrets import definition_secrets
    from toolcrib.servers.secrets.definition_secrets import DefinitionSecrets
else:
    registry = lazy_module("toolcrib.servers.registry.registry")
    apps = lazy_module("toolcrib.servers.apps.apps")
    definition_secrets = lazy_module("toolcrib.servers.secrets.definition_secrets")


class Upstreams:
    """Servers and their connections. `open` opens them, and its stack closes them.

    With `eager`, servers whose offer is unknown connect at startup.
    """

    def __init__(
        self, context: CribContext, gate: GateParts, *, web: Web, credentials: CredentialStore, eager: bool
    ) -> None:
        self._context = context
        self._gate = gate.gate
        self._catalog = gate.catalog
        self._tokens = gate.tokens
        self._real_paths: dict[str, str] = {}
        store, home, environment = context.store, context.home, context.environment
        self.web = web
        self.servers = gate.servers
        self.pins = Pins(store, is_person=gate.principals.is_person)
        self.processes = Processes(environment, home.marker, home.processes)
        opener_deps = OpenerDeps(
            processes=self.processes,
            web=web,
            tokens=credentials,
            environment=environment,
            commands=SecretCommands(environment),
            hello=ClientIntroduction(
                {"name": "toolcrib", "title": "Toolcrib", "version": __version__}, modern_capabilities=HOSTS_APPS
            ),
            client_document=context.settings.client_metadata_url,
            may_open=context.stop_switch.check,
            secrets=context.secrets,
            named_secrets=context.named_secrets,
            sandboxes=home.sandboxes,
            leases=ServerLeases(store, context.id, context.node_client, context.tasks) if store.shared else None,
        )
        self.pool = Pool(
            opener_deps,
            OfferStore(partial(load_offers, store), partial(save_offers, store)),
            own_url=context.address.on_loopback,
            eager=eager,
        )
        self.placed_servers = PlacedServers(self.pool.placed)
        self.intake = Intake(gate.catalog, self.pins, self.pool.sources, partial(keep_names, store, gate.catalog.names))
        self._sign_ins = SignIns(web, credentials)
        self.operations = UpstreamOperations(self.servers, self.pool, opener_deps, self._sign_ins, self._settle)
        self.servers.watch(self._on_view)
        self.pool.watch(on_sources=self.intake.changed, on_status=self._on_status)

    @cached_property
    def registry(self) -> "Registry":
        """The registry of published servers."""
        context = self._context
        address, bundles = context.settings.registry_url, context.home.server_bundles
        deps = registry.RegistryDeps(address, self.web, bundles, context.environment, context.user_home, lint_text)
        return registry.Registry(self.servers, deps)

    @cached_property
    def clients(self) -> "Apps":
        """The apps that the crib can be connected to."""
        return apps.Apps(self.servers, self._tokens, _app_deps(self._context))

    @cached_property
    def definition_secrets(self) -> "DefinitionSecrets":
        """The plaintext secrets in definitions, and the stored ones that replace them."""
        context = self._context
        return definition_secrets.DefinitionSecrets(
            context.home,
            context.environment,
            context.named_secrets,
            self.servers,
            self.clients,
            self._restart_users,
        )

    async def open(self, stack: AsyncExitStack) -> None:
        """Discover all servers, load what is known of them, and follow changes."""
        await self.pins.load()
        await stack.enter_async_context(self.processes)
        await stack.enter_async_context(self.pool)
        if self._context.stop_switch.is_stopped:
            self.pool.halt()
        await stack.enter_async_context(self._sign_ins)
        await self.servers.list()
        await self.intake.take(None)
        self._context.tasks.start_soon(self.intake.follow)
        self._context.tasks.start_soon(self.servers.follow)

    async def placed(self, principal: Principal) -> Principal:
        """Return the principal with the real path of its directory, after discovering the servers there."""
        if principal.cwd is None:
            return principal
        project = self._real_paths.get(principal.cwd)
        if project is None:
            project = await anyio.to_thread.run_sync(os.path.realpath, principal.cwd)
            await self.servers.list(Path(project))
            await self.intake.take(Path(project))
            self._real_paths[principal.cwd] = project
        return principal if project == principal.cwd else replace(principal, cwd=project)

    async def ready(self, principal: Principal, server: str, tool: str | None = None) -> None:
        """Ensure that a server's offer is known, connecting it if needed.

        Does nothing if the principal may not know of the server or tool, because that would reveal whether the server
        exists or fails. Raises an `Unavailable` with the server's own code if it cannot be connected.
        """
        project = path_of(principal.cwd)
        source = self.pool.find(server, project)
        if source is None or not self._gate.may_know(principal, server, tool):
            return
        if source.offer is None:
            await source.upstream.ensure()
        if not self.intake.is_taken(project, source):
            await self.intake.take(project)  # would happen soon anyway, but is needed now

    def introduction(self, principal: Principal, server: str) -> Introduction | None:
        """Return a server's introduction, or None if the principal has no server of that name."""
        server = self._gate.server(principal, server)
        if server not in self._gate.servers(principal):
            return None
        source = self.pool.find(server, path_of(principal.cwd))
        accepted = self.intake.introduction(source) if source is not None else None
        return accepted if accepted is not None else Introduction()

    def health(self, server: str, cwd: str) -> str:
        """Return a server's state as seen from a directory. An in-process server is always connected."""
        found = self.pool.find(server, path_of(cwd)) or self.pool.find(server)
        return found.status.state if found is not None else "connected"

    async def note(self, server: str, cwd: str | None) -> str | None:
        """Return what is wrong with a server as seen from a directory, or None.

        An in-process server has no definition. A definition of the same name in a file, such as an app's entry for this
        crib, does not describe it.
        """
        project = path_of(cwd)
        is_upstream = self.pool.find(server, project) is not None
        if not is_upstream and server in self._catalog.at(cwd).sources:
            return None
        return await self.operations.note(server, project)

    def _on_view(self, cwd: Path | None, discovery: Discovery | None) -> None:
        if discovery is not None:
            self._learn_secrets(discovery)
            self.pool.reconcile(cwd, discovery)
        elif cwd is not None:
            self.pool.drop(cwd)
            self._catalog.forget(str(cwd))
            self._real_paths = {path: real for path, real in self._real_paths.items() if real != str(cwd)}

    def _learn_secrets(self, discovery: Discovery) -> None:
        """Mask literal secrets before servers start. Untrusted definitions are skipped: they could hide text."""
        for entry in discovery.servers:
            if entry.trusted and entry.spec is not None:
                self._context.secrets.add(*literal_secrets(entry.spec, self._context.environment))

    def _on_status(self, entry: ServerEntry) -> None:
        self._context.feed.publish("server_changed", self.operations.status(entry).news())

    async def _restart_users(self, secret: str) -> tuple[str, ...]:
        """Restart the running servers whose definitions refer to a stored secret; return their names."""

        def uses(spec: ServerSpec) -> bool:
            return any(each.kind == "keyring" and each.name == secret for _, each in spec_references(spec))

        return self.pool.restart_if(uses)

    async def _settle(self, cwd: Path | None) -> None:
        await self.intake.take(Path(await anyio.Path(cwd).resolve()) if cwd is not None else None)


def _app_deps(context: CribContext) -> "AppDeps":
    is_default_home = context.settings.origins.get("home") == "default"
    return apps.AppDeps(
        crib=context.home.root,
        address=context.address.for_apps,
        command=own_command(),
        home=None if is_default_home else str(context.home.root),
        environment=context.environment,
    )


def path_of(cwd: str | None) -> Path | None:
    """Return a directory as a `Path`."""
    return Path(cwd) if cwd is not None else None
