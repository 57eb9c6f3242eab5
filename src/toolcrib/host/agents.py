"""The side of a crib that runs agents: runtimes, sessions and schedules, on what the other side has opened.

Above: `crib` opens it last and closes it first. Below: `sessions`, `schedule`. It must never reach for a part of the
crib that it was not given.
"""

import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from toolcrib.builtin.crew.code import CodeDirectory
from toolcrib.builtin.crew.messages import Messenger
from toolcrib.builtin.crew.owner import Person
from toolcrib.builtin.crew.projects import ProjectDirectory
from toolcrib.builtin.crew.work import WorkDesk
from toolcrib.builtin.scheduling import Scheduling
from toolcrib.connect import Processes
from toolcrib.connect.web import Web
from toolcrib.credits import Credits
from toolcrib.feed import Feed
from toolcrib.gate import Gate
from toolcrib.home import Home
from toolcrib.host.crew import Crew, open_github
from toolcrib.library import Library
from toolcrib.model.agents import Agent
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.sessions import Session, SessionEventKind
from toolcrib.notify import Notifier
from toolcrib.policy.approvals import WAIT
from toolcrib.policy.permissions import Permissions
from toolcrib.principals import Principals, SessionTokens
from toolcrib.schedule import Clock, ReadinessCheck, Runs, Schedules
from toolcrib.sessions import NewSession, Recorder, Sessions
from toolcrib.sessions.briefing import Briefing
from toolcrib.sessions.desk import SessionDesk
from toolcrib.sessions.live import House
from toolcrib.sessions.programs import Programs
from toolcrib.sessions.questions import Questions
from toolcrib.sessions.runners import Doorway, Runners, load_claude
from toolcrib.sessions.transcripts import Transcripts
from toolcrib.settings import Environment, Settings
from toolcrib.store import Store
from toolcrib.store.sessions import load_runtimes
from toolcrib.symbols import Symbols
from toolcrib.work import Git, Work
from toolcrib.zoo import Zoo

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions  # noqa: TID251 for its type only


@dataclass(frozen=True, slots=True)
class Footing:
    """What agents stand on. `crib` names this crib among those on one database."""

    crib: str
    settings: Settings
    environment: Environment
    home: Home
    user_home: Path
    store: Store
    feed: Feed
    tasks: TaskGroup
    gate: Gate
    zoo: Zoo
    permissions: Permissions
    principals: Principals
    session_tokens: SessionTokens
    processes: Processes
    web: Web
    clock: Clock
    on_time: bool
    placed: Callable[[Principal], Awaitable[Principal]]
    server_note: Callable[[str, str | None], Awaitable[str | None]]
    mcp_url: Callable[[], str | None]
    default_cwd: Callable[[], str]


class Agents:
    """Runtimes, sessions, schedules: opened by `open`, closed with its stack."""

    def __init__(self, footing: Footing) -> None:
        self._footing = footing
        doorway = Doorway(
            url=footing.mcp_url,
            tokens=footing.session_tokens,
            name=partial(footing.gate.name, "endpoint"),
            who=lambda session: self.sessions.who(session),
        )
        programs = Programs(footing.home.settings_file)
        self.runners = Runners(footing.environment, footing.home.runtimes, programs, footing.processes, doorway)
        self.transcripts = Transcripts(claude_folder(footing), partial(load_runtimes, footing.store))
        self.questions = Questions(footing.principals.may_answer)
        self.credits = Credits(footing.store)
        self.notifier = Notifier(footing.store, footing.feed, footing.web, footing.environment)
        self._briefing = Briefing(footing.gate, footing.zoo, footing.placed)
        self.sessions: Sessions
        self.schedules: Schedules
        self.crew: Crew

    async def open(self, stack: AsyncExitStack) -> None:
        """Take up what the store has, and follow the clock."""
        footing, crib = self._footing, self._footing.crib
        house = House(
            gate=footing.gate,
            questions=self.questions,
            budget=self.credits,
            recorder=Recorder(footing.store, crib),
            runner=self.runners.get,
            brief=self._briefing.of,
            starts=anyio.CapacityLimiter(os.cpu_count() or 1),
            idle_seconds=footing.settings.session_idle,
            on_change=self._on_session,
        )
        self.sessions = await stack.enter_async_context(
            Sessions(
                footing.store,
                house,
                crib=crib,
                agent=self._agent,
                default_cwd=footing.default_cwd,
                most_at_once=footing.settings.max_sessions,
            )
        )
        self.schedules = await stack.enter_async_context(
            Schedules(
                footing.store,
                Runs(footing.store, self.sessions, crib, footing.clock.now),
                ReadinessCheck(footing.gate, footing.permissions.has_agent, footing.placed, footing.server_note),
                publish=footing.feed.publish,
                clock=footing.clock,
                crib=crib,
                on_time=footing.on_time,
            )
        )
        self.crew = await self._open_crew(stack)
        footing.tasks.start_soon(self.notifier.follow)

    async def _open_crew(self, stack: AsyncExitStack) -> Crew:
        footing = self._footing
        work = await stack.enter_async_context(
            Work(
                footing.store,
                self.sessions,
                Git(footing.environment),
                crib=footing.crib,
                place=footing.home.work,
                now=footing.clock.now,
            )
        )
        is_person = footing.principals.is_person
        return Crew(
            zoo=footing.zoo,
            sessions=self.sessions,
            messenger=Messenger(self.sessions, footing.zoo),
            library=Library(footing.store),
            credits=self.credits,
            person=Person(self.notifier, self.sessions, is_person),
            projects=ProjectDirectory(footing.permissions.projects, footing.default_cwd),
            scheduling=Scheduling(self.schedules, footing.permissions.has_agent, is_person, footing.default_cwd),
            code=CodeDirectory(Symbols(footing.environment), footing.permissions.projects, footing.default_cwd),
            github=open_github(footing.settings, footing.web, stack),
            work=WorkDesk(work, footing.zoo, is_person, footing.default_cwd),
        )

    def claude_options(self, new: NewSession) -> "ClaudeAgentOptions":
        """Options for a loop of somebody else's; see `Crib.claude_options`."""
        footing = self._footing
        runner = load_claude().ClaudeRunner(footing.environment, footing.home.runtimes)
        kept = footing.zoo.compiled_now(new.agent)[0] if new.agent is not None else None
        session = self.sessions.drafted(new, kept.agent if kept is not None else None)

        def tell(kind: SessionEventKind, data: JsonObject, parent: str | None) -> None:
            """Whoever drives the loop reads its messages themselves."""

        def leave_planning() -> None:
            nonlocal session
            session = replace(session, mode="default")

        desk = SessionDesk(
            footing.gate,
            tell,
            self.questions,
            lambda: session.principal,
            lambda: WAIT,
            footing.tasks,
            leave_planning=leave_planning,
        )
        return runner.options(self._briefing.now(session), desk)

    async def _agent(self, agent: str) -> Agent:
        return (await self._footing.zoo.get(agent)).agent

    def _on_session(self, session: Session) -> None:
        self._footing.feed.publish("session_changed", {"session": session.to_json()})


def claude_folder(footing: Footing) -> Path:
    """Where Claude Code keeps its own transcripts."""
    moved = footing.environment.get("CLAUDE_CONFIG_DIR")
    return Path(moved) if moved else footing.user_home / ".claude"
