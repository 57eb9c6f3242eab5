"""The part of a crib that runs agents: runtimes, sessions and schedules. Opened last and closed first.

All parts are built in order; `open` then loads their stored state.
"""

import importlib
import logging
import os
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from toolcrib.agents.credits import Credits
from toolcrib.agents.notify.approval_notices import ApprovalNotices, LinkNotices, SendNotice
from toolcrib.agents.notify.notifier import Notifier
from toolcrib.agents.schedules.readiness import ReadinessCheck
from toolcrib.agents.schedules.runs import Runs
from toolcrib.agents.schedules.schedules import Clock, Schedules
from toolcrib.agents.sessions.briefing import Briefing
from toolcrib.agents.sessions.elsewhere import RemoteSessions
from toolcrib.agents.sessions.event_log import Recorder
from toolcrib.agents.sessions.live_session import SessionDeps
from toolcrib.agents.sessions.programs import Programs
from toolcrib.agents.sessions.questions import Questions, SharedQuestions
from toolcrib.agents.sessions.recording.recorded_runtime import ModelAccess
from toolcrib.agents.sessions.recording.recordings import RecordableRuntimes, Recordings
from toolcrib.agents.sessions.runtimes import EndpointAccess, Runtimes, load_claude
from toolcrib.agents.sessions.session_tools import SessionBudgets, SessionTools
from toolcrib.agents.sessions.sessions import NewSession, Sessions
from toolcrib.agents.sessions.transcripts import Transcripts
from toolcrib.agents.work.git import Git
from toolcrib.agents.work.work import Work
from toolcrib.base.lazy_modules import lazy_module
from toolcrib.base.masking.text import mask_text
from toolcrib.gate.approvals.approvals import WAIT
from toolcrib.host.context import CribContext
from toolcrib.host.gate import GateParts
from toolcrib.host.push import push_notices
from toolcrib.host.takeover import WorkTransfer
from toolcrib.host.upstreams import Upstreams
from toolcrib.model.agents import Agent
from toolcrib.model.events import Event
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Mode, Principal
from toolcrib.model.sessions import Session, SessionEventKind
from toolcrib.nodes.database_clock import DatabaseClock
from toolcrib.store.sessions import load_runtimes

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions  # noqa: TID251 for its type only

    from toolcrib.host import session_replays
    from toolcrib.host.session_replays import SessionReplays
    from toolcrib.nodes.jobs import Jobs
else:
    session_replays = lazy_module("toolcrib.host.session_replays")

logger = logging.getLogger(__name__)

_SESSION = "session "
"""Prefix of the signal that a session has new events."""
_QUESTION = "question "
"""Prefix of the signal that a question was answered."""


class Agents:
    """Runtimes, sessions and schedules. `open` opens them, and its stack closes them."""

    def __init__(
        self, context: CribContext, gate: GateParts, upstreams: Upstreams, *, clock: Clock | None, on_time: bool
    ) -> None:
        clock = clock or _clock(context)
        self._context = context
        self._parts = gate
        settings, store, home = context.settings, context.store, context.home
        endpoint_name = partial(gate.gate.name, "endpoint")
        endpoint_access = EndpointAccess(context.address.for_runtimes, gate.session_tokens, endpoint_name)
        programs = Programs(home.settings_file)
        self.runners = Runtimes(context.environment, home.runtimes, programs, upstreams.processes, endpoint_access)
        self.questions = Questions(gate.principals.may_answer, self._shared_questions(context))
        self.credits = Credits(store)
        self.notifier = Notifier(store, context.feed, upstreams.web, context.environment, settings.webhook_secret)
        self.push = push_notices(context, upstreams.web)
        budgets = SessionBudgets(settings.result_tokens, settings.whole_results)
        self._briefing = Briefing(gate.gate, gate.zoo, upstreams.placed)
        gate.gate.results.are_read_in_sessions = budgets.tokens > 0
        self.recordings = _recordings(context)
        access = ModelAccess(context.environment, upstreams.web, str(context.user_home))
        session_deps = SessionDeps(
            gate=gate.gate,
            questions=self.questions,
            budget=self.credits,
            recorder=Recorder(store, context.id, lambda id: context.signals.send(f"{_SESSION}{id}")),
            runner=RecordableRuntimes(self.runners.get, self.recordings, access).get,
            brief=self._briefing.of,
            starts=anyio.CapacityLimiter(os.cpu_count() or 1),
            idle_seconds=settings.session_idle,
            on_change=self._on_session,
            on_mode=self._on_mode,
            health=upstreams.health,
            result_budgets=budgets,
        )
        self.sessions = self._build_sessions(session_deps)
        self._access = access
        context.audit.call_records.held_epoch = self.sessions.held_epoch
        self.transcripts = Transcripts(claude_folder(context), self._known_runtimes)
        jobs = _jobs(context) if on_time else None
        self.schedules = Schedules(
            store,
            Runs(store, self.sessions, context.id, clock.now, (lambda: jobs.may_write) if jobs else lambda: True),
            ReadinessCheck(
                gate.gate, gate.permissions.has_agent, upstreams.placed, upstreams.note, self.sessions.check_creator
            ),
            publish=context.feed.publish,
            clock=clock,
            crib=context.id,
            stop_switch=context.stop_switch,
            on_time=on_time,
            jobs=jobs,
        )
        self.work = Work(
            store, self.sessions, Git(context.environment), crib=context.id, place=home.work, now=clock.now, jobs=jobs
        )
        self._takeover = (
            WorkTransfer(context, jobs, self.sessions, self.schedules, self._close_approvals) if jobs else None
        )

    @cached_property
    def replays(self) -> "SessionReplays":
        """The replays of recorded sessions."""
        return session_replays.SessionReplays(self.sessions, self.runners, self.recordings, self._access)

    async def _close_approvals(self, node: str) -> None:
        await self._parts.approvals.close_of_cribs([node])

    def _shared_questions(self, context: CribContext) -> SharedQuestions | None:
        if not context.store.shared:
            return None

        async def alive() -> set[str]:
            return {node.id for node in await context.membership.alive()}

        return SharedQuestions(
            context.store, context.id, signal=lambda id: context.signals.send(f"{_QUESTION}{id}"), alive=alive
        )

    def _build_sessions(self, deps: SessionDeps) -> Sessions:
        context, gate = self._context, self._parts
        return Sessions(
            context.store,
            deps,
            crib=context.id,
            agent=self._agent,
            default_agent=gate.permissions.default_agent,
            default_cwd=context.default_cwd,
            most_at_once=context.settings.max_sessions,
            changes=gate.changes,
            stop_switch=context.stop_switch,
            creators=gate.creators,
            remote=RemoteSessions(context.node_client) if context.node_client is not None else None,
            is_alive=self._is_alive,
        )

    async def open(self, stack: AsyncExitStack) -> None:
        """Load the stored state and start the background tasks."""
        await stack.enter_async_context(self.sessions)
        self._parts.approvals.listen(self.sessions.on_approval)
        self._parts.approvals.listen(self.recordings.on_approval)
        await stack.enter_async_context(self.schedules)
        await stack.enter_async_context(self.work)
        if self._takeover is not None:
            await self._takeover.open(stack)
        self._context.tasks.start_soon(self.notifier.follow)
        settings = self._context.settings
        senders: list[SendNotice] = [self.push.send]
        if settings.approval_address is not None:
            senders.append(LinkNotices(self.notifier, self._approval_link, self._mask).send)
        notices = ApprovalNotices(senders, settings.approval_reminder)
        self._parts.approvals.listen(notices.hear)
        self._context.tasks.start_soon(notices.follow)
        self._parts.tokens.listen(self._on_token_end)
        stack.callback(self._context.feed.listen(self._on_event))
        stack.callback(self._context.signals.listen(self._on_signal))

    def _mask(self, text: str) -> str:
        return mask_text(text, self._context.secrets.mask)

    async def _approval_link(self, id: str) -> str:
        return self._parts.approval_links.url(await self._parts.approvals.get(id))

    async def _is_alive(self, crib: str) -> bool:
        return any(node.id == crib for node in await self._context.membership.alive())

    async def count_sessions(self, cwd: str) -> int:
        """Return the number of the crib's own sessions in a directory plus those that only Claude Code knows."""
        project = await anyio.to_thread.run_sync(os.path.realpath, cwd)
        return await self.sessions.count(project) + await self.transcripts.count(project)

    def _on_token_end(self, _: Principal) -> None:
        self._context.tasks.start_soon(self.end_revoked)

    async def end_revoked(self) -> None:
        """End the sessions and pause the schedules of a revoked token. Its permissions are gone already."""
        try:
            await self.sessions.end_revoked()
            await self.schedules.pause_revoked()
        except Exception:  # boundary: remaining sessions have no permissions, and the next run retries
            logger.exception("Could not end the sessions and schedules of a revoked token.")

    def claude_options(self, new: NewSession) -> "ClaudeAgentOptions":
        """Return options for a loop driven by the embedding program; see `Crib.claude_options`."""
        context, gate = self._context, self._parts
        if new.agent is None:
            new = replace(new, agent=gate.permissions.default_agent(new.cwd or context.default_cwd()))
        runtime = load_claude().ClaudeRuntime(context.environment, context.home.runtimes)
        stored = gate.zoo.compiled_now(new.agent)[0] if new.agent is not None else None
        session = self.sessions.draft(new, stored.agent if stored is not None else None)

        def ignore(kind: SessionEventKind, data: JsonObject, parent: str | None) -> None:
            """Drop the event: the embedding program reads the messages itself."""

        def leave_planning() -> None:
            nonlocal session
            session = replace(session, mode="default")

        brief = self._briefing.now(session)
        tools = SessionTools(
            gate.gate,
            ignore,
            self.questions,
            lambda: session.principal,
            lambda: WAIT,
            context.tasks,
            leave_planning=leave_planning,
            budgets=SessionBudgets(context.settings.result_tokens, context.settings.whole_results),
            listing=brief.listing,
        )
        return runtime.options(brief, tools)

    def _on_mode(self, session: str, mode: Mode) -> None:
        """Record that a session left plan mode because a user approved its plan."""
        self._parts.creators.set_mode(session, mode)
        self._parts.changes.noticed("sessions.mode", {"id": session, "before": "plan", "after": mode})

    async def _known_runtimes(self, cwd: str | None) -> set[str]:
        """Return the runtimes' ids of the crib's sessions, including copies that are still being written."""
        return await load_runtimes(self._context.store, cwd) | self.sessions.runtimes()

    async def _agent(self, agent: str) -> Agent:
        return (await self._parts.zoo.get(agent)).agent

    def _on_event(self, event: Event) -> None:
        if event.kind == "server_changed":
            self.sessions.servers_changed()

    def _on_signal(self, topic: str) -> None:
        if topic.startswith(_SESSION):
            self.sessions.changed_elsewhere(topic.removeprefix(_SESSION))
        elif topic.startswith(_QUESTION):
            self.questions.answered_elsewhere(topic.removeprefix(_QUESTION))

    def _on_session(self, session: Session) -> None:
        self._context.feed.publish("session_changed", {"session": session.to_json()})


def _jobs(context: CribContext) -> "Jobs | None":
    """Return the jobs of the nodes that share the database; None if no other crib can use it."""
    if not context.store.shared:
        return None
    return importlib.import_module("toolcrib.nodes.jobs").Jobs(context.store, context.membership, context.signals)


def _clock(context: CribContext) -> Clock:
    """Return the clock of the database if other cribs may use it, else the system clock."""
    if not context.store.shared:
        return Clock()
    clock = DatabaseClock(context.store)
    return Clock(clock.now, synchronise=clock.synchronise)


def _recordings(context: CribContext) -> Recordings:
    def mask(text: str) -> str:
        return mask_text(text, context.secrets.mask)

    return Recordings(context.home.recordings, mask, records_all=context.settings.record_sessions)


def claude_folder(context: CribContext) -> Path:
    """Return the directory of Claude Code's own transcripts."""
    moved = context.environment.get("CLAUDE_CONFIG_DIR")
    return Path(moved) if moved else context.user_home / ".claude"
