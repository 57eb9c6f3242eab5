"""A crib: opens all of its parts in order, and closes them in reverse order.

A crib holds the lock of its home, so there is one per home.

Must never decide anything itself: it passes a part only values, or small functions of other parts.
"""

import logging
import os
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from toolcrib.agents.schedules.schedules import Clock
from toolcrib.agents.sessions.coding_source import CodingSource
from toolcrib.agents.sessions.creators import Creators
from toolcrib.agents.sessions.manager import NewSession, OpenSession
from toolcrib.agents.work.git import Git
from toolcrib.agents.zoo.zoo import Zoo
from toolcrib.base.feed import Feed, fresh_start
from toolcrib.base.files.reading import FileText
from toolcrib.base.files.write import WriteContext
from toolcrib.base.home import HomeLock, kept_token, prepare_home, read_run
from toolcrib.base.masking.known import KnownSecrets
from toolcrib.base.masking.logs import masked_logs
from toolcrib.base.masking.values import ValueMasker
from toolcrib.base.settings import Environment, Settings
from toolcrib.base.stop_switch import StopSwitch
from toolcrib.builtin.agent_zoo.source import AgentZooSource
from toolcrib.builtin.crew.server import crew_server
from toolcrib.builtin.toolcrib.configuration import Configuration
from toolcrib.builtin.toolcrib.server import CribFacts, Services, toolcrib_server
from toolcrib.builtin.toolcrib.servers import ServerDirectory
from toolcrib.builtin.toolcrib.sessions import SessionDirectory
from toolcrib.gate.approvals.approvals import Approvals
from toolcrib.gate.approvals.consent import Consent
from toolcrib.gate.approvals.handles import Handles
from toolcrib.gate.audit.changes import Changes
from toolcrib.gate.audit.records import Audit
from toolcrib.gate.audit.redact import Redactor
from toolcrib.gate.catalog.catalog import Catalog, CatalogChange
from toolcrib.gate.catalog.naming import NameRow, NameTable
from toolcrib.gate.gate import Gate
from toolcrib.gate.policy.explain import Explanation
from toolcrib.gate.policy.permissions import Permissions, managed_file
from toolcrib.gate.policy.rule_files import RuleFile, RuleFileState
from toolcrib.gate.principals import NamedTokens, Principals, SessionTokens
from toolcrib.gate.touched_paths import HomeGuard
from toolcrib.host.agents import AgentDeps, Agents
from toolcrib.host.anchoring import Anchoring
from toolcrib.host.audit_key import follow_key
from toolcrib.host.backups import Backups, database_file
from toolcrib.host.crew import crew_providers, crew_services
from toolcrib.host.file_changes import changes_of
from toolcrib.host.kill_switch import KillSwitch, StoppableParts
from toolcrib.host.names import ToolNames, keep_names
from toolcrib.host.secrets import own_secrets
from toolcrib.host.upstreams import UpstreamDeps, Upstreams
from toolcrib.model.errors import InvalidRequest, Unavailable
from toolcrib.model.events import Event
from toolcrib.model.json import JsonObject, canonical, is_object, storable
from toolcrib.model.policy import AgentGrants
from toolcrib.model.principals import Mode, Principal, Source
from toolcrib.model.sessions import NO_LIMITS, SessionLimits
from toolcrib.model.sources import Introduction, Notice
from toolcrib.model.tools import CallResult, ToolRef
from toolcrib.servers.apps.apps import AppDeps
from toolcrib.servers.crib_entry import own_command
from toolcrib.servers.trust import load_trust
from toolcrib.store.engine import Store, open_store
from toolcrib.store.names import load_names
from toolcrib.tools import PythonSource, ToolServer
from toolcrib.tools.folder import ToolFolder
from toolcrib.tools.plugins.packages import Plugins

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions  # noqa: TID251 for its type only

logger = logging.getLogger(__name__)

LOCK_TRIES = 10
"""Attempts to acquire the lock, which a process that only checks it holds for a moment."""


class Crib:
    """One crib. Use as `async with Crib(Settings(home=path)) as crib`.

    `services` names what tools may require; a tool that requires anything else is not offered. With `eager`, servers
    whose offer is unknown connect at startup; otherwise each connects on first use. With `on_time`, scheduled runs
    start when they are due according to `clock`.
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
        self.port = 0
        """The listening port; 0 while the crib does not listen."""
        self.notice: str | None = None
        """A banner for every page of the console, such as that of a demo crib."""
        self.secrets = KnownSecrets()
        """Values of known secrets. They are masked in every record and display."""
        self._masker = ValueMasker(self.secrets)
        self.feed = Feed(start=fresh_start(), mask=self._masked)
        self._environment = environment or Environment.current()
        self._services = frozenset((*services, *crew_services(settings)))
        self._eager = eager
        self._clock = clock or Clock()
        self._on_time = on_time
        self._settings_written: deque[str] = deque(maxlen=8)
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _open(self, stack: AsyncExitStack) -> None:
        self.started_at = datetime.now(UTC)
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
        self.tokens = NamedTokens(self.store, on_end=self._on_token_end)
        await self.tokens.refresh()
        self._creators = Creators(self.tokens, lambda: self.permissions.changed())
        self.session_tokens = SessionTokens()
        token = stack.enter_context(kept_token(self.home))
        self.secrets.add(token, *own_secrets(self.settings, self._environment))
        stack.enter_context(masked_logs(self.secrets))
        self.principals = Principals(token, self.tokens, self.session_tokens)
        redactor = Redactor(self.secrets)
        audit = Audit(self.store, self.home.audit_head, redactor, crib=self._crib_id)
        self.audit = await stack.enter_async_context(audit)
        self._tasks = await stack.enter_async_context(anyio.create_task_group())
        self.audit.seal.look()
        self._tasks.start_soon(follow_key, self.audit, self.home.root)
        self._follow_retention()
        stack.callback(self._tasks.cancel_scope.cancel)
        stack.callback(self.feed.close)
        self.catalog = Catalog(
            NameTable(await load_names(self.store)), keep_names=self._keep_names, on_change=self._on_change
        )
        await self._open_permissions(stack)
        self._sources = await stack.enter_async_context(AsyncExitStack())
        self._agents = AgentZooSource(self.zoo)
        self.catalog.add(self._agents)
        self._sources.push_async_callback(_shielded, self._agents.aclose)
        self._tasks.start_soon(self.zoo.follow)
        self._register_own()
        self.register(crew_server(crew_providers(lambda: self.crew)))
        await self._open_plugins(stack)
        await self._open_upstreams(stack)
        await self._open_agents(stack)
        self._open_anchoring()
        self.kill_switch = self._made_kill_switch()
        self.kill_switch.notice_removed_marker()
        self._tasks.start_soon(self.kill_switch.follow)

    def _register_own(self) -> None:
        self.register(
            toolcrib_server(
                Services(
                    facts=self._facts,
                    sessions=lambda: SessionDirectory(self.sessions, self._count_sessions, self._facts().cwd),
                    servers=lambda: ServerDirectory(self.links, self.gate),
                    scheduling=lambda: self.crew.scheduling,
                    configuration=lambda: Configuration(
                        self.settings,
                        self.home.settings_file,
                        WriteContext(self._user_home(), self.home.backups, self.home.root),
                        self.changes,
                        self._settings_written.append,
                    ),
                )
            )
        )

    def _made_kill_switch(self) -> KillSwitch:
        return KillSwitch(
            StoppableParts(
                switch=self.stop_switch,
                remembered=self.home.last_rules / "stopped",
                changes=self.changes,
                gate=self.gate,
                approvals=self.approvals,
                sessions=self.sessions,
                schedules=self.schedules,
                pool=self.pool,
                tokens=self.tokens,
                publish=self.feed.publish,
            )
        )

    def _open_anchoring(self) -> None:
        self.backups = Backups(self.store, self.audit, self.home, database_file(self.settings))
        if self._on_time:
            self._tasks.start_soon(self.backups.follow)
        self.anchoring = Anchoring(self.audit, self.home, self._upstreams.web, Git(self._environment))
        if self.settings.audit_anchor is not None and self._on_time:
            self._tasks.start_soon(self.anchoring.follow, self.settings.audit_anchor)

    async def _open_plugins(self, stack: AsyncExitStack) -> None:
        folder = ToolFolder(
            self.home.tools,
            self.catalog.exchange,
            services=self._services,
            taken=self.catalog.has_server,
            kept=self.home.last_rules / "tools.json",
            notice=self.changes.noticed,
        )
        self._sources.push_async_callback(_shielded, folder.aclose)
        await folder.load()
        self._tasks.start_soon(folder.follow)
        stack.callback(folder.stop)
        self.plugins = Plugins(
            self.store,
            self.catalog.exchange,
            self._tasks,
            services=self._services,
            taken=self.catalog.has_server,
        )
        self._sources.push_async_callback(_shielded, self.plugins.aclose)
        await self.plugins.load()

    def _follow_retention(self) -> None:
        days = self.settings.audit_keep_days
        if days is not None and self.store.shared:
            logger.warning("Audit records are not sealed: other cribs may use their database.")
        elif days is not None:
            self._tasks.start_soon(partial(self.audit.segments.follow, days, by=self.principals.owner("scheduler")))

    async def _open_permissions(self, stack: AsyncExitStack) -> None:
        self.changes = Changes(self.audit, lambda: self.permissions.rules().fingerprint)
        self.zoo = Zoo(
            self.store,
            self.feed.publish,
            self.changes,
            renew=self.catalog.refresh,
            additions=lambda cwd: self.permissions.projects.prompts(cwd),
        )
        await self.zoo.open()
        self.permissions = Permissions(
            self.store,
            managed=managed_file(),
            settings_file=self.home.settings_file,
            last_rules=self.home.last_rules,
            names=ToolNames(lambda: self.catalog),
            of_agent=self._agent_grants,
            trusted=self._is_trusted,
            creator_now=self._creators.current,
            on_change=self._on_rules,
            on_file=self._on_rule_file,
        )
        await self.permissions.load()
        self.tokens.watch(self.permissions.let_apps_read)
        self._tasks.start_soon(self.permissions.follow)
        stack.callback(self.feed.listen(self._on_event))
        self.approvals = await stack.enter_async_context(
            Approvals(
                self.store,
                crib=self._crib_id,
                publish=self._publish_approval,
                may_answer=self.principals.may_answer,
                may_remember=self.principals.may_remember,
                redact=self.audit.redactor.shown,
                mask=ValueMasker(self.secrets, certain=True).json,
                remember=self.permissions.remember,
            )
        )
        self._handles = Handles(self.approvals, self._tasks)
        self._guard = HomeGuard(self.home.root, self.home.work, self._user_home())
        self.gate = Gate(
            self.catalog,
            self.audit,
            default_timeout=self.settings.tool_timeout,
            rules=self.permissions.rules,
            grants=self.permissions.grants,
            limits=self.permissions.limits,
            consent=Consent(self.approvals, self._handles, self.principals.may_answer, self.changes),
            home=self._guard,
            stop_switch=self.stop_switch,
            absence=lambda principal, ref: self._upstreams.absence(principal, ref),
        )

    async def _open_upstreams(self, stack: AsyncExitStack) -> None:
        deps = UpstreamDeps(
            environment=self._environment,
            home=self.home,
            user_home=self._user_home(),
            store=self.store,
            feed=self.feed,
            tasks=self._tasks,
            catalog=self.catalog,
            gate=self.gate,
            changes=self.changes,
            stop_switch=self.stop_switch,
            principals=self.principals,
            tokens=self.tokens,
            reach=self._reach(),
            eager=self._eager,
            client_document=self.settings.client_metadata_url,
            port=lambda: self.port,
            secrets=self.secrets,
        )
        self._upstreams = Upstreams(deps)
        await self._upstreams.open(stack)
        self.pins, self.intake = self._upstreams.pins, self._upstreams.intake
        self.servers, self.clients = self._upstreams.servers, self._upstreams.clients
        self.pool, self.links = self._upstreams.pool, self._upstreams.links

    async def _open_agents(self, stack: AsyncExitStack) -> None:
        self.catalog.add(CodingSource())
        deps = AgentDeps(
            crib=self._crib_id,
            settings=self.settings,
            environment=self._environment,
            home=self.home,
            user_home=self._user_home(),
            store=self.store,
            feed=self.feed,
            tasks=self._tasks,
            gate=self.gate,
            guard=self._guard,
            zoo=self.zoo,
            permissions=self.permissions,
            changes=self.changes,
            stop_switch=self.stop_switch,
            principals=self.principals,
            creators=self._creators,
            session_tokens=self.session_tokens,
            processes=self._upstreams.processes,
            web=self._upstreams.web,
            clock=self._clock,
            on_time=self._on_time,
            placed=self.placed,
            server_note=self._upstreams.note,
            mcp_url=self._mcp_url,
            default_cwd=lambda: self._facts().cwd,
            health=self._upstreams.health,
        )
        self._side = Agents(deps)
        await self._side.open(stack)
        self.runners, self.transcripts = self._side.runners, self._side.transcripts
        self.sessions, self.schedules = self._side.sessions, self._side.schedules
        self.crew = self._side.crew

    async def _lock(self, stack: AsyncExitStack) -> None:
        lock = HomeLock(self.home)
        for _ in range(LOCK_TRIES):
            if lock.try_acquire():
                break
            await anyio.sleep(0.05)
        else:
            info = read_run(self.home)
            who = f"at {info.url} (process {info.pid}, {info.kind})" if info else "but does not say where it listens"
            raise Unavailable("crib.running", f"A crib is already running on {self.home.root}, {who}.")
        stack.callback(lock.release)

    def register(self, server: ToolServer) -> None:
        """Add Python tools. Raises for invalid definitions, missing providers and names already in use."""
        source = PythonSource(server, services=self._services)
        self.catalog.add(source)
        self._sources.push_async_callback(_shielded, source.aclose)

    async def call(
        self, ref: str | ToolRef, arguments: JsonObject | None = None, *, principal: Principal
    ) -> CallResult:
        """Call a tool through the gate. Raises like `Gate.call`."""
        named = _named(ref)
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
    ) -> Explanation:
        """Explain why a call would be allowed, ask for approval or be denied, and what would change that."""
        named = _named(ref)
        placed = await self.placed(principal)
        return self.gate.explain(placed, named, arguments, await self._upstreams.note(named.server, placed.cwd))

    def listen(self, listener: Callable[[Notice], None]) -> Callable[[], None]:
        """Subscribe to notifications of upstreams and of the zoo. Returns a function that unsubscribes."""

        def on_event(event: Event) -> None:
            for uri in self._agents.updated(event.data) if event.kind == "agent_changed" else ():
                listener(Notice("resources/updated", self._agents.name, {"uri": uri}))

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
        return self.sessions.opened(NewSession(source, place, agent, mode, model, title, runner, limits))

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
        return self._side.claude_options(NewSession(source, place, agent, mode, model, limits=limits))

    def _url(self, port: int) -> str | None:
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"http://{host}:{port}" if port else None

    def _mcp_url(self) -> str | None:
        return f"{self._url(self.port)}/mcp" if self.port else None

    def _lasting_address(self) -> str | None:
        """Return the address for apps: the current one if this crib keeps running, else the configured one."""
        return self._url(self.port if self._eager and self.port else self.settings.port)

    def _reach(self) -> AppDeps:
        is_usual = self.settings.origins.get("home") == "default"
        return AppDeps(
            crib=self.home.root,
            address=self._lasting_address,
            command=own_command(),
            home=None if is_usual else str(self.home.root),
            environment=self._environment,
        )

    @property
    def _crib_id(self) -> str:
        return f"{socket.gethostname()} {self.home.marker}"

    def _facts(self) -> CribFacts:
        cwd = self.settings.default_cwd or Path.cwd()
        return CribFacts(self.port, self.started_at, str(cwd))

    async def _count_sessions(self, cwd: str) -> int:
        """Return the number of the crib's own sessions plus those that only Claude Code knows."""
        place = await anyio.to_thread.run_sync(os.path.realpath, cwd)
        return await self.sessions.count(place) + await self.transcripts.count(place)

    def _user_home(self) -> Path:
        home = self._environment.get("HOME")
        return Path(home) if home else Path.home()

    def _keep_names(self, rows: Sequence[NameRow]) -> None:
        self._tasks.start_soon(keep_names, self.store, rows)

    def _agent_grants(self, agent: str) -> AgentGrants | None:
        given = self.zoo.granted(agent)
        return AgentGrants(*given) if given is not None else None

    def _is_trusted(self, project: str) -> bool:
        return any(record.place == project for record in load_trust(self.home.trust_file).records)

    def _on_event(self, event: Event) -> None:
        if event.kind == "agent_changed":
            self.permissions.changed()

    def _on_token_end(self, token: Principal) -> None:
        """Withdraw a revoked token's approvals, and end the sessions it started. Their permissions end at once."""
        self._handles.withdraw(token)
        self.permissions.changed()
        self._tasks.start_soon(self._side.end_revoked)

    def _on_rules(self) -> None:
        # Listings may have changed; subscribers compare.
        self.feed.publish("catalog_changed", CatalogChange(self.catalog.snapshot.version, (), (), ()).to_json())

    def _on_rule_file(self, file: RuleFile, before: RuleFileState, now: RuleFileState) -> None:
        who = Principal("owner", file.creator, "cli")  # the file was edited by hand
        text = now.content.text if now.content is not None else None
        is_own = isinstance(text, FileText) and text.text in self._settings_written
        for kind, changed in changes_of(file, before, now):
            if not (is_own and kind == "settings.file"):  # recorded already as a change by the caller of a tool
                self.changes.noticed(kind, changed, by=who)

    def _publish_approval(self, kind: str, data: JsonObject) -> None:
        self.feed.publish("approval_required" if kind == "approval_required" else "approval_resolved", data)
        if "sessionId" in data:
            self.sessions.on_approval(kind, data)

    def _masked(self, kind: str, data: JsonObject) -> JsonObject:
        """Return the data of an event without secrets. Catalog changes are skipped: they hold none and are long."""
        if kind == "catalog_changed" or not self._masker.is_suspect(canonical(storable(data))):
            return data
        masked = self._masker.texts(data)
        return masked if is_object(masked) else data

    def _on_change(self, change: CatalogChange) -> None:
        self.feed.publish("catalog_changed", change.to_json())


def _named(ref: str | ToolRef) -> ToolRef:
    named = ToolRef.parse(ref) if isinstance(ref, str) else ref
    if named is None:
        raise InvalidRequest("request.malformed", f"{ref!r} is not a tool.", "Write `server/tool`.")
    return named


async def _shielded(close: Callable[[], Awaitable[None]]) -> None:
    # Resources of providers must be closed even while the crib itself is being cancelled.
    with anyio.CancelScope(shield=True):
        await close()
