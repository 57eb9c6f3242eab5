"""The half of a crib that runs agents: runtimes, sessions and schedules. Opened last and closed first.

Must never use a part of the crib that is not in its dependencies.
"""

import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from toolcrib.agents.credits import Credits
from toolcrib.agents.library import Library
from toolcrib.agents.notify.notifier import Notifier
from toolcrib.agents.schedules.readiness import ReadinessCheck
from toolcrib.agents.schedules.runs import Runs
from toolcrib.agents.schedules.schedules import Clock, Schedules
from toolcrib.agents.sessions.briefing import Briefing
from toolcrib.agents.sessions.creators import Creators
from toolcrib.agents.sessions.event_log import Recorder
from toolcrib.agents.sessions.live_session import SessionDeps
from toolcrib.agents.sessions.manager import NewSession, Sessions
from toolcrib.agents.sessions.programs import Programs
from toolcrib.agents.sessions.questions import Questions
from toolcrib.agents.sessions.runtimes import EndpointAccess, Runtimes, load_claude
from toolcrib.agents.sessions.session_tools import SessionTools
from toolcrib.agents.sessions.transcripts import Transcripts
from toolcrib.agents.symbols.index import Symbols
from toolcrib.agents.work.git import Git
from toolcrib.agents.work.work import Work
from toolcrib.agents.zoo.zoo import Zoo
from toolcrib.base.feed import Feed
from toolcrib.base.home import Home
from toolcrib.base.network.web import Web
from toolcrib.base.processes.process import Processes
from toolcrib.base.settings import Environment, Settings
from toolcrib.base.stop_switch import StopSwitch
from toolcrib.builtin.crew.code import CodeDirectory
from toolcrib.builtin.crew.messages import Messenger
from toolcrib.builtin.crew.owner import Person
from toolcrib.builtin.crew.projects import ProjectDirectory
from toolcrib.builtin.crew.work import WorkService
from toolcrib.builtin.scheduling import Scheduling
from toolcrib.gate.approvals.approvals import WAIT
from toolcrib.gate.gate import Gate
from toolcrib.gate.policy.permissions import Permissions
from toolcrib.gate.principals import Principals, SessionTokens
from toolcrib.gate.touched_paths import HomeGuard
from toolcrib.host.crew import Crew, open_github
from toolcrib.model.agents import Agent
from toolcrib.model.changes import ChangeRecorder
from toolcrib.model.events import Event
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Mode, Principal
from toolcrib.model.sessions import Session, SessionEventKind
from toolcrib.store.engine import Store
from toolcrib.store.sessions import load_runtimes

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions  # noqa: TID251 for its type only

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AgentDeps:
    """Dependencies of the agents. `crib` identifies this crib among those that share a database."""

    crib: str
    settings: Settings
    environment: Environment
    home: Home
    user_home: Path
    store: Store
    feed: Feed
    tasks: TaskGroup
    gate: Gate
    guard: HomeGuard
    zoo: Zoo
    permissions: Permissions
    changes: ChangeRecorder
    stop_switch: StopSwitch
    principals: Principals
    creators: Creators
    session_tokens: SessionTokens
    processes: Processes
    web: Web
    clock: Clock
    on_time: bool
    placed: Callable[[Principal], Awaitable[Principal]]
    server_note: Callable[[str, str | None], Awaitable[str | None]]
    mcp_url: Callable[[], str | None]
    default_cwd: Callable[[], str]
    health: Callable[[str, str], str]


class Agents:
    """Runtimes, sessions and schedules. `open` opens them, and its stack closes them."""

    def __init__(self, deps: AgentDeps) -> None:
        self._deps = deps
        endpoint_access = EndpointAccess(
            url=deps.mcp_url,
            tokens=deps.session_tokens,
            name=partial(deps.gate.name, "endpoint"),
            who=lambda session: self.sessions.who(session),
        )
        programs = Programs(deps.home.settings_file)
        self.runners = Runtimes(deps.environment, deps.home.runtimes, programs, deps.processes, endpoint_access)
        self.transcripts = Transcripts(claude_folder(deps), self._known_runtimes)
        self.questions = Questions(deps.principals.may_answer)
        self.credits = Credits(deps.store)
        self.notifier = Notifier(deps.store, deps.feed, deps.web, deps.environment)
        self._briefing = Briefing(deps.gate, deps.zoo, deps.placed)
        self.sessions: Sessions
        self.schedules: Schedules
        self.crew: Crew

    async def open(self, stack: AsyncExitStack) -> None:
        """Load the stored state and start the background tasks."""
        deps, crib = self._deps, self._deps.crib
        session_deps = SessionDeps(
            gate=deps.gate,
            questions=self.questions,
            budget=self.credits,
            recorder=Recorder(deps.store, crib),
            runner=self.runners.get,
            brief=self._briefing.of,
            starts=anyio.CapacityLimiter(os.cpu_count() or 1),
            idle_seconds=deps.settings.session_idle,
            on_change=self._on_session,
            on_mode=self._on_mode,
            health=deps.health,
        )
        self.sessions = await stack.enter_async_context(
            Sessions(
                deps.store,
                session_deps,
                crib=crib,
                agent=self._agent,
                default_agent=self._default_agent,
                default_cwd=deps.default_cwd,
                most_at_once=deps.settings.max_sessions,
                changes=deps.changes,
                stop_switch=deps.stop_switch,
                creators=deps.creators,
            )
        )
        self.schedules = await stack.enter_async_context(
            Schedules(
                deps.store,
                Runs(deps.store, self.sessions, crib, deps.clock.now),
                ReadinessCheck(
                    deps.gate,
                    deps.permissions.has_agent,
                    deps.placed,
                    deps.server_note,
                    self.sessions.check_creator,
                ),
                publish=deps.feed.publish,
                clock=deps.clock,
                crib=crib,
                stop_switch=deps.stop_switch,
                on_time=deps.on_time,
            )
        )
        self.crew = await self._open_crew(stack)
        deps.tasks.start_soon(self.notifier.follow)
        stack.callback(deps.feed.listen(self._on_event))

    async def end_revoked(self) -> None:
        """End the sessions and pause the schedules of a revoked token. Its permissions are gone already."""
        try:
            await self.sessions.end_revoked()
            await self.schedules.pause_revoked()
        except Exception:  # boundary: remaining sessions have no permissions, and the next run retries
            logger.exception("Sessions and schedules of a revoked token could not be ended.")

    async def _open_crew(self, stack: AsyncExitStack) -> Crew:
        deps = self._deps
        work = await stack.enter_async_context(
            Work(
                deps.store,
                self.sessions,
                Git(deps.environment),
                crib=deps.crib,
                place=deps.home.work,
                now=deps.clock.now,
            )
        )
        is_person = deps.principals.is_person
        return Crew(
            zoo=deps.zoo,
            sessions=self.sessions,
            messenger=Messenger(self.sessions, deps.zoo),
            library=Library(deps.store),
            credits=self.credits,
            person=Person(self.notifier, self.sessions, is_person),
            projects=ProjectDirectory(deps.permissions.projects, deps.default_cwd),
            scheduling=Scheduling(self.schedules, deps.permissions.has_agent, is_person, deps.default_cwd),
            code=CodeDirectory(
                Symbols(deps.environment),
                deps.permissions.projects,
                deps.default_cwd,
                partial(deps.guard.is_closed, is_tree=True),
            ),
            github=open_github(deps.settings, deps.web, stack),
            work=WorkService(work, deps.zoo, is_person, deps.default_cwd, deps.guard.is_closed),
        )

    def claude_options(self, new: NewSession) -> "ClaudeAgentOptions":
        """Return options for a loop driven by the embedding program; see `Crib.claude_options`."""
        deps = self._deps
        if new.agent is None:
            new = replace(new, agent=self._default_agent(os.path.realpath(new.cwd or deps.default_cwd())))
        runner = load_claude().ClaudeRuntime(deps.environment, deps.home.runtimes)
        kept = deps.zoo.compiled_now(new.agent)[0] if new.agent is not None else None
        session = self.sessions.drafted(new, kept.agent if kept is not None else None)

        def tell(kind: SessionEventKind, data: JsonObject, parent: str | None) -> None:
            """Drop the event: the embedding program reads the messages itself."""

        def leave_planning() -> None:
            nonlocal session
            session = replace(session, mode="default")

        desk = SessionTools(
            deps.gate,
            tell,
            self.questions,
            lambda: session.principal,
            lambda: WAIT,
            deps.tasks,
            leave_planning=leave_planning,
        )
        return runner.options(self._briefing.now(session), desk)

    def _on_mode(self, session: str, mode: Mode) -> None:
        """Record that a session left plan mode because a user approved its plan."""
        self._deps.creators.set_mode(session, mode)
        self._deps.changes.noticed("sessions.mode", {"id": session, "before": "plan", "after": mode})

    async def _known_runtimes(self, cwd: str | None) -> set[str]:
        """Return the runtimes' ids of the crib's sessions, including copies that are still being written."""
        return await load_runtimes(self._deps.store, cwd) | self.sessions.runtimes()

    def _default_agent(self, cwd: str) -> str | None:
        """Return the agent of the project that contains a directory, unless it was deleted."""
        permissions = self._deps.permissions
        agent = permissions.projects.agent(cwd)
        return agent if agent is not None and permissions.has_agent(agent) else None

    async def _agent(self, agent: str) -> Agent:
        return (await self._deps.zoo.get(agent)).agent

    def _on_event(self, event: Event) -> None:
        if event.kind == "server_changed":
            self.sessions.servers_changed()

    def _on_session(self, session: Session) -> None:
        self._deps.feed.publish("session_changed", {"session": session.to_json()})


def claude_folder(deps: AgentDeps) -> Path:
    """Return the directory of Claude Code's own transcripts."""
    moved = deps.environment.get("CLAUDE_CONFIG_DIR")
    return Path(moved) if moved else deps.user_home / ".claude"
