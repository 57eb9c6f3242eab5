"""A crib: everything it is made of, opened in order.

A crib holds the lock of its home, so there is one per home. What it opens it closes in reverse order, whatever happens.
Above: `server` puts it on the network, programs of others embed it. It must never decide anything itself: what it gives
to a part is a value, or a small function of another part.
"""

import logging
import os
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from toolcrib.audit import Audit, Changes
from toolcrib.audit.redact import shown
from toolcrib.builtin.agent_zoo_content import AgentZooSource
from toolcrib.builtin.configuration import Configuration
from toolcrib.builtin.crew import crew_server
from toolcrib.builtin.servers import ServerDirectory
from toolcrib.builtin.sessions import SessionDirectory
from toolcrib.builtin.toolcrib import CribFacts, Services, toolcrib_server
from toolcrib.catalog.catalog import Catalog
from toolcrib.catalog.naming import NameRow, NameTable
from toolcrib.catalog.snapshot import CatalogChange
from toolcrib.config.crib_entry import own_command
from toolcrib.config.edit.write import Writing
from toolcrib.config.trust import load_trust
from toolcrib.errors import InvalidRequest, Unavailable
from toolcrib.feed import Feed, fresh_start
from toolcrib.gate import Consent, Gate
from toolcrib.home import HomeLock, owner_token, prepare_home, read_run
from toolcrib.host.agents import Agents, Footing
from toolcrib.host.crew import crew_providers, crew_services
from toolcrib.host.names import KnownNames, keep_names
from toolcrib.host.upstreams import UpstreamFooting, Upstreams
from toolcrib.model.events import Event
from toolcrib.model.json import JsonObject
from toolcrib.model.policy import AgentGrants, Rule
from toolcrib.model.principals import Mode, Principal, Source
from toolcrib.model.sessions import NO_LIMITS, SessionLimits
from toolcrib.model.sources import Introduction, Notice
from toolcrib.model.tools import CallResult, ToolRef
from toolcrib.plugins import Plugins, ToolFolder
from toolcrib.policy.approvals import Approvals
from toolcrib.policy.explain import Explanation
from toolcrib.policy.handles import Handles
from toolcrib.policy.permissions import Permissions, managed_file
from toolcrib.policy.rule_files import RuleFile
from toolcrib.principals import Principals, SessionTokens, Tokens
from toolcrib.schedule import Clock
from toolcrib.servers import Reach
from toolcrib.sessions import NewSession, OpenSession
from toolcrib.sessions.coding import CodingSource
from toolcrib.settings import Environment, Settings
from toolcrib.store import Store, load_names, open_store
from toolcrib.tools import PythonSource, ToolServer
from toolcrib.zoo import Zoo

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions  # noqa: TID251 for its type only

logger = logging.getLogger(__name__)

LOCK_TRIES = 10
"""How often to try for the lock: whoever only looks whether it is free holds it for a moment."""


class Crib:
    """One crib: `async with Crib(Settings(home=path)) as crib`.

    `services` names what tools may require; a tool that requires anything else is not offered. `eager` connects servers
    of which nothing is known yet at once; else every server is connected when it is first used. `on_time` begins
    scheduled runs when they are due; `clock` says when that is.
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
        """Where the crib listens; 0 while it does not."""
        self.notice: str | None = None
        """What every page of the console says first, where this crib is not what it looks like."""
        self.feed = Feed(start=fresh_start())
        self._environment = environment or Environment.current()
        self._services = frozenset((*services, *crew_services(settings)))
        self._eager = eager
        self._clock = clock or Clock()
        self._on_time = on_time
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
        self.store: Store = await stack.enter_async_context(
            open_store(
                self.settings.database,
                durability=self.settings.durability,
                alone=self.settings.database_url is None,  # the lock of the home is then that of its database too
            )
        )
        self.tokens = Tokens(self.store, on_end=lambda token: self._handles.withdraw(token))
        await self.tokens.refresh()
        self.session_tokens = SessionTokens()
        self.principals = Principals(owner_token(self.home), self.tokens, self.session_tokens)
        self.audit = await stack.enter_async_context(Audit(self.store, self.home.audit_head))
        self._tasks = await stack.enter_async_context(anyio.create_task_group())
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
                        Writing(self._user_home(), self.home.backups, self.home.root),
                    ),
                )
            )
        )
        self.register(crew_server(crew_providers(lambda: self.crew)))
        await self._open_plugins(stack)
        await self._open_upstreams(stack)
        await self._open_agents(stack)

    async def _open_plugins(self, stack: AsyncExitStack) -> None:
        folder = ToolFolder(
            self.home.tools, self.catalog.exchange, services=self._services, taken=self.catalog.has_server
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
        self.zoo = Zoo(
            self.store,
            self.feed.publish,
            renew=self.catalog.refresh,
            additions=lambda cwd: self.permissions.projects.prompts(cwd),
        )
        await self.zoo.open()
        self.permissions = Permissions(
            self.store,
            managed=managed_file(),
            settings_file=self.home.settings_file,
            last_rules=self.home.last_rules,
            names=KnownNames(lambda: self.catalog),
            of_agent=self._agent_grants,
            trusted=self._is_trusted,
            on_change=self._on_rules,
            on_file=self._on_rule_file,
        )
        self.changes = Changes(self.audit, lambda: self.permissions.rules().fingerprint)
        await self.permissions.load()
        self._tasks.start_soon(self.permissions.follow)
        stack.callback(self.feed.listen(self._on_event))
        self.approvals = await stack.enter_async_context(
            Approvals(
                self.store,
                crib=self._crib_id,
                publish=self._publish_approval,
                may_answer=self.principals.may_answer,
                redact=shown,
                remember=self.permissions.remember,
            )
        )
        self._handles = Handles(self.approvals, self._tasks)
        self.gate = Gate(
            self.catalog,
            self.audit,
            default_timeout=self.settings.tool_timeout,
            rules=self.permissions.rules,
            grants=self.permissions.grants,
            limits=lambda: self.permissions.limits,
            consent=Consent(self.approvals, self._handles, self.principals.may_answer),
        )

    async def _open_upstreams(self, stack: AsyncExitStack) -> None:
        footing = UpstreamFooting(
            environment=self._environment,
            home=self.home,
            user_home=self._user_home(),
            store=self.store,
            feed=self.feed,
            tasks=self._tasks,
            catalog=self.catalog,
            gate=self.gate,
            principals=self.principals,
            tokens=self.tokens,
            reach=self._reach(),
            eager=self._eager,
            port=lambda: self.port,
        )
        self._upstreams = Upstreams(footing)
        await self._upstreams.open(stack)
        self.pins, self.intake = self._upstreams.pins, self._upstreams.intake
        self.servers, self.clients = self._upstreams.servers, self._upstreams.clients
        self.pool, self.links = self._upstreams.pool, self._upstreams.links

    async def _open_agents(self, stack: AsyncExitStack) -> None:
        self.catalog.add(CodingSource())
        footing = Footing(
            crib=self._crib_id,
            settings=self.settings,
            environment=self._environment,
            home=self.home,
            user_home=self._user_home(),
            store=self.store,
            feed=self.feed,
            tasks=self._tasks,
            gate=self.gate,
            zoo=self.zoo,
            permissions=self.permissions,
            principals=self.principals,
            session_tokens=self.session_tokens,
            processes=self._upstreams.processes,
            web=self._upstreams.web,
            clock=self._clock,
            on_time=self._on_time,
            placed=self.placed,
            server_note=self._upstreams.note,
            mcp_url=self._mcp_url,
            default_cwd=lambda: self._facts().cwd,
        )
        self._side = Agents(footing)
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
            raise Unavailable("crib.running", f"A crib already runs on {self.home.root}, {who}.")
        stack.callback(lock.release)

    def register(self, server: ToolServer) -> None:
        """Take Python tools in. Wrong definitions, missing providers and a name that is taken are refused here."""
        source = PythonSource(server, services=self._services)
        self.catalog.add(source)
        self._sources.push_async_callback(_shielded, source.aclose)

    async def call(
        self, ref: str | ToolRef, arguments: JsonObject | None = None, *, principal: Principal
    ) -> CallResult:
        """Call a tool through the gate; see `Gate.call` for what is raised."""
        named = _named(ref)
        return (await self.gate.call(principal, named, arguments or {}, door="library")).result

    async def placed(self, principal: Principal) -> Principal:
        """The same asker, by the real path of its directory, whose servers are known from now on."""
        return await self._upstreams.placed(principal)

    async def ready(self, principal: Principal, server: str) -> None:
        """See to it that what a server offers is known, if there is one of that name; connects it if need be.

        Raises `Unavailable` (`server.failed`) where that does not work.
        """
        await self._upstreams.ready(principal, server)

    def introduction(self, principal: Principal, server: str) -> Introduction | None:
        """What a server says of itself; None where there is none of that name for this asker."""
        return self._upstreams.introduction(principal, server)

    def owner(self, source: Source = "api", *, mode: Mode | None = None, cwd: str | None = None) -> Principal:
        """The owner, asking from this source."""
        return self.principals.owner(source, mode=mode, cwd=cwd)

    def as_agent(self, agent: str, source: Source = "api", *, mode: Mode | None = None) -> Principal:
        """The owner, asking in the name of an agent."""
        return self.principals.owner(source, agent=agent, mode=mode)

    async def why(
        self, ref: str | ToolRef, *, principal: Principal, arguments: JsonObject | None = None
    ) -> Explanation:
        """Why a call would be allowed, asked for or refused, and what would change that."""
        named = _named(ref)
        placed = await self.placed(principal)
        return self.gate.explain(placed, named, arguments, await self._upstreams.note(named.server, placed.cwd))

    def listen(self, listener: Callable[[Notice], None]) -> Callable[[], None]:
        """Hear what servers say by themselves, upstream ones and the zoo; gives how to stop."""

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
        """A session of an agent: `async with crib.session(agent="reviewer") as session`."""
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
        """Options for your own loop with the Claude Agent SDK: its tools are the crib's, decided and recorded here.

        The conversation is yours to read and to resume. Servers of a project are among the tools once the crib knows
        the directory (`await crib.placed(crib.owner(cwd=path))`).
        """
        place = str(Path(cwd).absolute()) if cwd is not None else None
        return self._side.claude_options(NewSession(source, place, agent, mode, model, limits=limits))

    def _url(self, port: int) -> str | None:
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"http://{host}:{port}" if port else None

    def _mcp_url(self) -> str | None:
        return f"{self._url(self.port)}/mcp" if self.port else None

    def _lasting_address(self) -> str | None:
        """Where tools find the crib for good: where it listens if it stays, else where it would."""
        return self._url(self.port if self._eager and self.port else self.settings.port)

    def _reach(self) -> Reach:
        is_usual = self.settings.origins.get("home") == "default"
        return Reach(
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
        """Those of the crib, and those that Claude Code has kept and the crib does not know."""
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

    def _on_rules(self) -> None:
        # Lists may be others now; whoever shows one compares.
        self.feed.publish("catalog_changed", CatalogChange(self.catalog.snapshot.version, (), (), ()).to_json())

    def _on_rule_file(self, file: RuleFile, added: Sequence[Rule], removed: Sequence[Rule]) -> None:
        who = Principal("owner", file.creator, "cli")  # whoever wrote the file, by hand
        told = {"added": [rule.to_json() for rule in added], "removed": [rule.to_json() for rule in removed]}
        self.changes.noticed("rules.file", {"file": str(file.path), **told}, by=who)

    def _publish_approval(self, kind: str, data: JsonObject) -> None:
        self.feed.publish("approval_required" if kind == "approval_required" else "approval_resolved", data)
        if "sessionId" in data:
            self.sessions.on_approval(kind, data)

    def _on_change(self, change: CatalogChange) -> None:
        self.feed.publish("catalog_changed", change.to_json())


def _named(ref: str | ToolRef) -> ToolRef:
    named = ToolRef.parse(ref) if isinstance(ref, str) else ref
    if named is None:
        raise InvalidRequest("request.malformed", f"{ref!r} is not a tool.", "Write `server/tool`.")
    return named


async def _shielded(close: Callable[[], Awaitable[None]]) -> None:
    # What providers opened has to be closed even while the crib itself is being cancelled.
    with anyio.CancelScope(shield=True):
        await close()
