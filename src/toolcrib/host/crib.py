"""A crib: builds and opens all of its parts in order, and closes them in reverse order.

A crib holds the lock of its home, so there is one per home. Each part is built from parts that exist already; a part
that must hear of a later one's changes is subscribed to it.

Must never decide anything itself.
"""

import logging
import socket
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import anyio

from toolcrib.agents.schedules.schedules import Clock
from toolcrib.agents.sessions.coding_source import CodingSource
from toolcrib.agents.sessions.open_session import OpenSession
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.agents.work.git import Git
from toolcrib.base.feed import Feed, fresh_start
from toolcrib.base.home import HomeLock, kept_token, prepare_home, read_run, replace_token
from toolcrib.base.masking.logs import mask_logs
from toolcrib.base.masking.values import KnownSecrets, Redactor, ValueMasker
from toolcrib.base.named_secrets import NamedSecrets
from toolcrib.base.network.web import open_web
from toolcrib.base.settings import Environment, Settings
from toolcrib.base.stop_switch import StopSwitch
from toolcrib.builtin.agent_zoo.source import AgentZooSource
from toolcrib.gate.audit.audit import Audit
from toolcrib.gate.catalog.naming import NameTable
from toolcrib.host.agents import Agents
from toolcrib.host.anchoring import Anchoring
from toolcrib.host.audit_key import follow_key
from toolcrib.host.backups import Backups, database_file
from toolcrib.host.builtin import available_services, builtin_servers
from toolcrib.host.context import CribAddress, CribContext, own_secrets
from toolcrib.host.gate import GateParts
from toolcrib.host.kill_switch import KillSwitch
from toolcrib.host.telemetry.telemetry import Telemetry
from toolcrib.host.upstreams import Upstreams
from toolcrib.model.errors import InvalidRequest, Unavailable
from toolcrib.model.events import Event
from toolcrib.model.json import JsonObject, canonical, is_object, storable
from toolcrib.model.principals import Mode, Principal, Source
from toolcrib.model.sessions import NO_LIMITS, SessionLimits
from toolcrib.model.sources import Introduction, Notice
from toolcrib.model.tools import CallResult, ToolRef
from toolcrib.nodes.cluster_secret import ClusterSecret, check_secret, shared_owner_token
from toolcrib.nodes.forwarding import KEY_PURPOSE, NodeClient, RequestSigner
from toolcrib.nodes.membership import Membership
from toolcrib.nodes.outbox import Outbox
from toolcrib.nodes.policy_epoch import POLICY_TOPIC
from toolcrib.nodes.shared_files import SharedFiles
from toolcrib.nodes.signals import Signals
from toolcrib.store.audit_lanes import CHECKPOINT_LANE, lane_owners
from toolcrib.store.engine import Store, open_store
from toolcrib.store.leases import take_lease
from toolcrib.store.names import load_names
from toolcrib.store.stops import load_stop
from toolcrib.tools import PythonSource, ToolServer
from toolcrib.tools.folder import ToolFolder
from toolcrib.tools.plugins.packages import Plugins
from toolcrib.upstream.credentials import CredentialStore
from toolcrib.upstream.shared_credentials import SharedCredentialStore

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions  # noqa: TID251 for its type only

    from toolcrib.gate.policy.explain import Explanation
    from toolcrib.host.session_replays import SessionReplays
    from toolcrib.servers.apps.apps import Apps
    from toolcrib.servers.registry.registry import Registry
    from toolcrib.servers.secrets.definition_secrets import DefinitionSecrets

logger = logging.getLogger(__name__)

LOCK_TRIES = 10
"""Attempts to acquire the lock, which a process that only checks it holds for a moment."""
_SEALING_SECONDS = 600.0
"""Seconds for which one node seals the lanes that no running node writes."""


class Crib:
    """One crib. Use as `async with Crib(Settings(home=path)) as crib`.

    `services` names what tools may require; a tool that requires anything else is not offered. With `eager`, servers
    whose offer is unknown connect at startup; otherwise each connects on first use. With `on_time`, scheduled runs
    start when they are due according to `clock`, by default that of the database if other cribs may use it.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        environment: Environment | None = None,
        services: Collection[str] = (),
        eager: bool = False,
        clock: Clock | None = None,
        on_time: bool = True,
    ) -> None:
        self.settings = settings
        self.notice: str | None = None
        """A banner for every page of the console, such as that of a demo crib."""
        self.secrets = KnownSecrets()
        """Values of known secrets. They are masked in every record and display."""
        self._masker = ValueMasker(self.secrets)
        self.feed = Feed(start=fresh_start(), mask=self._mask)
        self._environment = environment or Environment.current()
        self._services = frozenset((*services, *available_services(settings)))
        self._eager = eager
        self._address = CribAddress(settings, is_lasting=eager)
        self._clock = clock
        self._on_time = on_time
        self._stack = AsyncExitStack()
        self._shared_files: SharedFiles | None = None

    @property
    def port(self) -> int:
        """The listening port; 0 while the crib does not listen."""
        return self._address.port

    @port.setter
    def port(self, port: int) -> None:
        self._address.port = port

    @property
    def registry(self) -> "Registry":
        """The registry of published servers."""
        return self._upstreams.registry

    @property
    def clients(self) -> "Apps":
        """The apps that this crib can be connected to."""
        return self._upstreams.clients

    @property
    def definition_secrets(self) -> "DefinitionSecrets":
        """The plaintext secrets in definitions, and the stored ones that replace them."""
        return self._upstreams.definition_secrets

    @property
    def replays(self) -> "SessionReplays":
        """The replays of recorded sessions."""
        return self._agents.replays

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _open(self, stack: AsyncExitStack) -> None:
        """Build all parts in order, register the built-in servers with them, then open the parts in the same order."""
        self.started_at = datetime.now(UTC)
        owner_token = await self._open_home(stack)
        context = await self._open_context(stack)
        gate = await self._build_gate(context, owner_token)
        upstreams = await self._build_upstreams(context, gate)
        agents = self._build_agents(context, gate, upstreams)

        await self._telemetry.open(stack, context.tasks, upstreams.web)
        await gate.open(stack)
        self._sources = await stack.enter_async_context(AsyncExitStack())
        self._add_source(self._zoo_source)
        for server in builtin_servers(
            context, gate, upstreams, agents, started_at=self.started_at, stack=self._sources
        ):
            self.register(server)
        self.catalog.add(CodingSource())
        await self._open_plugins(stack, context)
        if self._shared_files is not None:
            gate.policy.on_change(partial(self._on_shared_files, self._shared_files))
            gate.share_files = self._shared_files.push
            context.tasks.start_soon(self._shared_files.follow)
        await upstreams.open(stack)
        gate.policy.on_change(upstreams.intake.reload)
        await agents.open(stack)

        self._start_maintenance(context)
        self.kill_switch = self._build_kill_switch(context)
        self.kill_switch.notice_removed_marker()
        gate.policy.on_change(self.kill_switch.synchronise, first=True)
        self.membership.before_new_lease = self.kill_switch.synchronise
        context.tasks.start_soon(self.kill_switch.follow)
        # Last, because the package of the keyring takes long to import; the whole chain is signed once there is a key.
        context.tasks.start_soon(follow_key, self.audit, self.home.root)

    async def _open_home(self, stack: AsyncExitStack) -> str:
        """Lock the home and open its database. Returns the owner's token."""
        file = self.settings.node_secret_file
        self.cluster_secret = ClusterSecret.read(file) if file is not None else None
        self.home = prepare_home(self.settings.home)
        await self._lock(stack)
        self.stop_switch = StopSwitch(self.home.stop_marker)
        self.store: Store = await stack.enter_async_context(
            open_store(
                self.settings.database,
                durability=self.settings.durability,
                alone=self.settings.database_url is None,  # then the lock of the home also protects its database
            )
        )
        if self.store.shared:
            await self._join_cluster()
        owner_token = stack.enter_context(kept_token(self.home))
        self.secrets.add(owner_token, *own_secrets(self.settings, self._environment))
        stack.enter_context(mask_logs(self.secrets))
        return owner_token

    async def _join_cluster(self) -> None:
        """Check the node secret, and take over the stop, the owner's token and the files that all nodes share."""
        secret = self.cluster_secret
        if self.stop_switch.follow(await load_stop(self.store)) and not self.stop_switch.is_stopped:
            (self.home.last_rules / "stopped").unlink(missing_ok=True)  # another node recorded the end
        await check_secret(self.store, secret, is_node=self._eager)
        if secret is not None:
            with kept_token(self.home) as own:
                token = await shared_owner_token(self.store, secret, own)
            if token != own:
                replace_token(self.home, token)
            self._shared_files = SharedFiles(self.store, secret, self.home)
            await self._shared_files.open()

    async def _open_context(self, stack: AsyncExitStack) -> CribContext:
        """Join the nodes of the database, open the audit and start the group of background tasks."""
        id = f"{socket.gethostname()} {self.home.marker}"
        self.membership = await stack.enter_async_context(Membership(self.store, id))
        key = self.cluster_secret.key(KEY_PURPOSE) if self.cluster_secret is not None and self.store.shared else None
        self.request_signer = RequestSigner(key, id, since=self.membership.epoch) if key is not None else None
        self.node_client: NodeClient | None = None
        if self.request_signer is not None:
            client = NodeClient(self.request_signer, self.membership, self.settings.tls_cert)
            self.node_client = await stack.enter_async_context(client)
        self.signals = await stack.enter_async_context(Signals(self.store, id))
        if self.store.shared:
            await stack.enter_async_context(Outbox(self.store, self.feed, self.signals, id))
        redactor = Redactor(self.secrets)
        self._telemetry = Telemetry(self.settings, self._environment, redactor, self.secrets)
        self.counters = self._telemetry.counters
        self.audit = await stack.enter_async_context(
            Audit(self.store, self.home.audit_head, redactor, crib=id, observer=self._telemetry.observer)
        )
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        stack.callback(self.feed.close)
        self.audit.seal.look()
        stack.callback(self.signals.on_poll(self.membership.on_poll))
        tasks.start_soon(self.membership.follow)
        return CribContext(
            id=id,
            settings=self.settings,
            environment=self._environment,
            home=self.home,
            address=self._address,
            stop_switch=self.stop_switch,
            secrets=self.secrets,
            named_secrets=NamedSecrets(self.home.secrets, self.secrets),
            store=self.store,
            membership=self.membership,
            cluster_secret=self.cluster_secret,
            signals=self.signals,
            node_client=self.node_client,
            audit=self.audit,
            feed=self.feed,
            tasks=tasks,
        )

    async def _build_gate(self, context: CribContext, owner_token: str) -> GateParts:
        gate = GateParts(context, names=NameTable(await load_names(self.store)), owner_token=owner_token)
        self.tokens, self.session_tokens, self.principals = gate.tokens, gate.session_tokens, gate.principals
        self.catalog, self.changes, self.zoo = gate.catalog, gate.changes, gate.zoo
        self.permissions, self.approvals, self.gate = gate.permissions, gate.approvals, gate.gate
        self.approval_links, self.policy = gate.approval_links, gate.policy
        self.membership.load = lambda: len(gate.gate.in_flight)
        self.servers = gate.servers
        self._zoo_source = AgentZooSource(self.zoo)
        return gate

    async def _build_upstreams(self, context: CribContext, gate: GateParts) -> Upstreams:
        credentials = self._build_credentials(context)
        web = await open_web(self._environment)
        upstreams = Upstreams(context, gate, web=web, credentials=credentials, eager=self._eager)
        self._upstreams = upstreams
        self.pins, self.intake, self.placed_servers = upstreams.pins, upstreams.intake, upstreams.placed_servers
        self.pool, self.upstreams = upstreams.pool, upstreams.operations
        return upstreams

    def _build_credentials(self, context: CribContext) -> CredentialStore:
        """Return the sign-ins: those of the cluster if it has a secret to encrypt them with, else those of the home."""
        folder, secret = self.home.credentials, context.cluster_secret
        if self.store.shared and secret is not None:
            return SharedCredentialStore(self.store, secret, context.id, folder, self.secrets)
        return CredentialStore(folder, self.secrets)

    def _build_agents(self, context: CribContext, gate: GateParts, upstreams: Upstreams) -> Agents:
        agents = Agents(context, gate, upstreams, clock=self._clock, on_time=self._on_time)
        self._agents = agents
        self.runners, self.transcripts = agents.runners, agents.transcripts
        self.sessions, self.schedules, self.work = agents.sessions, agents.schedules, agents.work
        self.recordings, self.push = agents.recordings, agents.push
        return agents

    async def _on_shared_files(self, files: SharedFiles) -> None:
        """Take over files that other nodes changed, and the servers defined in them."""
        if await files.pull():
            await self.servers.list()
            self.permissions.renew()

    async def _open_plugins(self, stack: AsyncExitStack, context: CribContext) -> None:
        folder = ToolFolder(
            self.home.tools,
            self.catalog.exchange,
            services=self._services,
            taken=self.catalog.has_server,
            kept=self.home.last_rules / "tools.json",
            notice=self.changes.noticed,
        )
        self._sources.push_async_callback(_close_shielded, folder.aclose)
        await folder.load()
        context.tasks.start_soon(folder.follow)
        stack.callback(folder.stop)
        self.plugins = Plugins(
            self.store,
            self.catalog.exchange,
            context.tasks,
            services=self._services,
            taken=self.catalog.has_server,
        )
        self._sources.push_async_callback(_close_shielded, self.plugins.aclose)
        await self.plugins.load()

    def _start_maintenance(self, context: CribContext) -> None:
        """Start sealing, backing up and anchoring the audit, as configured."""
        days = self.settings.audit_keep_days
        if self.audit.lane:
            context.tasks.start_soon(self.audit.checkpoints.follow, self.signals)
            self.audit.segments.left_lanes = self._left_lanes
        if days is not None:
            sealing = partial(self.audit.segments.follow, days, by=self.principals.owner("scheduler"))
            context.tasks.start_soon(sealing)
        self.backups = Backups(self.store, self.audit, self.home, database_file(self.settings))
        if self._on_time:
            context.tasks.start_soon(self.backups.follow)
        self.anchoring = Anchoring(self.audit, self.home, self._upstreams.web, Git(self._environment))
        if self.settings.audit_anchor is not None and self._on_time:
            context.tasks.start_soon(self.anchoring.follow, self.settings.audit_anchor)

    async def _left_lanes(self) -> list[int]:
        """Return the lanes of the audit that no running node writes, for one node at a time."""
        if not await take_lease(self.store, "audit sealing", self.membership.id, _SEALING_SECONDS):
            return []
        alive = {node.id for node in await self.membership.alive()}
        owners = await lane_owners(self.store)
        return [0, CHECKPOINT_LANE, *(lane for lane, crib in owners.items() if crib not in alive)]

    def _build_kill_switch(self, context: CribContext) -> KillSwitch:
        return KillSwitch(
            self.stop_switch,
            remembered=self.home.last_rules / "stopped",
            changes=self.changes,
            gate=self.gate,
            approvals=self.approvals,
            sessions=self.sessions,
            schedules=self.schedules,
            pool=self.pool,
            tokens=self.tokens,
            publish=self.feed.publish,
            store=self.store,
            tasks=context.tasks,
            signal=partial(self.signals.send, POLICY_TOPIC),
        )

    async def _lock(self, stack: AsyncExitStack) -> None:
        lock = HomeLock(self.home)
        for _ in range(LOCK_TRIES):
            if lock.try_acquire():
                break
            await anyio.sleep(0.05)
        else:
            info = read_run(self.home)
            who = f"at {info.url} (process {info.pid}, {info.kind})" if info else "but its address is unknown"
            raise Unavailable("crib.running", f"A crib is already running on {self.home.root}, {who}.")
        stack.callback(lock.release)

    def register(self, server: ToolServer) -> None:
        """Add Python tools. Raises for invalid definitions, missing providers and names already in use."""
        self._add_source(PythonSource(server, services=self._services))

    def _add_source(self, source: AgentZooSource | PythonSource) -> None:
        self.catalog.add(source)
        self._sources.push_async_callback(_close_shielded, source.aclose)

    async def call(
        self, ref: str | ToolRef, arguments: JsonObject | None = None, *, principal: Principal
    ) -> CallResult:
        """Call a tool through the gate. Raises like `Gate.call`."""
        named = _parse_ref(ref)
        return (await self.gate.call(principal, named, arguments or {}, door="library")).result

    async def placed(self, principal: Principal) -> Principal:
        """Return the principal with the real path of its directory, after discovering the servers there."""
        return await self._upstreams.placed(principal)

    async def ready(self, principal: Principal, server: str, tool: str | None = None) -> None:
        """Ensure that a server's offer is known, if there is such a server and the principal may know of it.

        Raises an `Unavailable` with the server's own code if it cannot be connected.
        """
        await self._upstreams.ready(principal, server, tool)

    def introduction(self, principal: Principal, server: str) -> Introduction | None:
        """Return a server's introduction, or None if the principal has no server of that name."""
        return self._upstreams.introduction(principal, server)

    def owner(self, source: Source = "api", *, mode: Mode | None = None, cwd: str | None = None) -> Principal:
        """Return the owner as a principal from this source."""
        return self.principals.owner(source, mode=mode, cwd=cwd)

    def as_agent(self, agent: str, source: Source = "api", *, mode: Mode | None = None) -> Principal:
        """Return the owner as a principal that acts for an agent."""
        return self.principals.owner(source, agent=agent, mode=mode)

    async def why(
        self, ref: str | ToolRef, *, principal: Principal, arguments: JsonObject | None = None
    ) -> "Explanation":
        """Explain why a call would be allowed, ask for approval or be denied, and what would change that."""
        named = _parse_ref(ref)
        placed = await self.placed(principal)
        return self.gate.explain(placed, named, arguments, await self._upstreams.note(named.server, placed.cwd))

    def listen(self, listener: Callable[[Notice], None]) -> Callable[[], None]:
        """Subscribe to notifications of upstreams and of the zoo. Returns a function that unsubscribes."""

        def on_event(event: Event) -> None:
            for uri in self._zoo_source.updated(event.data) if event.kind == "agent_changed" else ():
                listener(Notice("resources/updated", self._zoo_source.name, {"uri": uri}))

        stops = (self.pool.listen(listener), self.feed.listen(on_event))

        def stop() -> None:
            for each in stops:
                each()

        return stop

    def session(
        self,
        agent: str | None = None,
        *,
        mode: Mode | None = None,
        source: Source = "api",
        cwd: str | Path | None = None,
        model: str | None = None,
        title: str | None = None,
        runner: str | None = None,
        limits: SessionLimits = NO_LIMITS,
    ) -> AbstractAsyncContextManager[OpenSession]:
        """Open a session of an agent. Use as `async with crib.session(agent="reviewer") as session`."""
        place = str(Path(cwd).absolute()) if cwd is not None else None
        return self.sessions.open(NewSession(source, place, agent, mode, model, title, runner, limits))

    def claude_options(
        self,
        agent: str | None = None,
        *,
        source: Source = "api",
        mode: Mode | None = None,
        cwd: str | Path | None = None,
        model: str | None = None,
        limits: SessionLimits = NO_LIMITS,
    ) -> "ClaudeAgentOptions":
        """Return options for your own loop with the Claude Agent SDK.

        Its tools are the crib's, checked and recorded here. Your program reads and resumes the conversation. The
        servers of a project are included once the crib knows the directory (`await crib.placed(crib.owner(cwd=path))`).
        """
        place = str(Path(cwd).absolute()) if cwd is not None else None
        return self._agents.claude_options(NewSession(source, place, agent, mode, model, limits=limits))

    def _mask(self, kind: str, data: JsonObject) -> JsonObject:
        """Return the data of an event without secrets. Catalog changes are skipped: they hold none and are long."""
        if kind == "catalog_changed" or not self._masker.is_suspect(canonical(storable(data))):
            return data
        masked = self._masker.texts(data)
        return masked if is_object(masked) else data


def _parse_ref(ref: str | ToolRef) -> ToolRef:
    named = ToolRef.parse(ref) if isinstance(ref, str) else ref
    if named is None:
        raise InvalidRequest("request.malformed", f"{ref!r} is not a tool reference.", "Write `server/tool`.")
    return named


async def _close_shielded(close: Callable[[], Awaitable[None]]) -> None:
    # Resources of providers must be closed even while the crib itself is being cancelled.
    with anyio.CancelScope(shield=True):
        await close()
