"""All sessions of a crib: create, prompt, change, read, fork and delete them.

The store has every session; those with pending work or a process are also live in memory. A session that was in a turn
when the crib ended becomes `interrupted` and continues with the next prompt.
"""

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, Self

import anyio
import anyio.to_thread

from toolcrib.agents.sessions.continuing import CONTINUED, continuing_prompts
from toolcrib.agents.sessions.conversation_view import ConversationView, ConversationViews
from toolcrib.agents.sessions.creators import Creators
from toolcrib.agents.sessions.elsewhere import RemoteSession, RemoteSessions
from toolcrib.agents.sessions.event_log import SessionLog
from toolcrib.agents.sessions.live_session import STOPPING, LiveSession, SessionDeps, status
from toolcrib.agents.sessions.live_sessions import LiveSessions
from toolcrib.agents.sessions.new_session import NewSession as NewSession
from toolcrib.agents.sessions.new_session import draft_session, resolved_directory
from toolcrib.agents.sessions.open_items import OpenItems
from toolcrib.agents.sessions.open_session import OpenSession as OpenSession
from toolcrib.base.stop_switch import StopSwitch
from toolcrib.model.agents import Agent
from toolcrib.model.changes import ChangeRecorder
from toolcrib.model.errors import Conflict, Denied, InvalidRequest, NotFound, ToolcribError, Unavailable
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Mode, Principal
from toolcrib.model.sessions import (
    AgentQuestion,
    Failure,
    Session,
    SessionEvent,
    SessionEventKind,
    Spent,
)
from toolcrib.store.engine import Store
from toolcrib.store.sessions import (
    UNFINISHED,
    SessionFilter,
    claim_session,
    count_matching,
    count_sessions,
    delete_session,
    insert_fork,
    insert_session,
    load_session,
    load_sessions,
    load_unfinished,
    matching_sessions,
    session_of_runtime,
)

LONGEST_PROMPT: Final = 1_000_000
"""In characters."""
MOST_QUEUED: Final = 100
EVERY: Final = SessionFilter()
_WITHOUT_APPROVAL: Final = frozenset[Mode]({"acceptEdits", "bypassPermissions"})
"""Modes in which calls run without an approval."""
_STOPPED: Final = "The crib stopped before this ended."


class Sessions:
    """Manages all sessions while open: `async with Sessions(…) as sessions`."""

    def __init__(
        self,
        store: Store,
        deps: SessionDeps,
        *,
        crib: str,
        agent: Callable[[str], Awaitable[Agent]],
        default_agent: Callable[[str], str | None],
        default_cwd: Callable[[], str],
        most_at_once: int,
        changes: ChangeRecorder,
        stop_switch: StopSwitch,
        creators: Creators,
        default_runner: str = "claude",
        is_alive: Callable[[str], Awaitable[bool]],
        remote: RemoteSessions | None = None,
    ) -> None:
        """`agent` returns an agent of the zoo or raises; `most_at_once` limits the sessions with a process.

        `is_alive` returns whether another crib on the same database is running.

        `default_agent` returns the agent for a directory if the request names none. `changes` records every mode that
        lets a session run calls without approval, and every mode change. `remote` reaches the sessions of other nodes.
        """
        self._remote = remote
        self._changes = changes
        self._stop_switch = stop_switch
        self._store = store
        self._deps = deps
        self._crib = crib
        self._agent = agent
        self._default_agent = default_agent
        self._default_cwd = default_cwd
        self._creators = creators
        self._default_runner = default_runner
        self._live = LiveSessions(store, deps, crib=crib, most_at_once=most_at_once, is_alive=is_alive)
        self._views = ConversationViews(self.transcript)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._find_interrupted()
        recorder = self._deps.recorder
        writing = await self._stack.enter_async_context(anyio.create_task_group())
        writing.start_soon(recorder.run)
        self._stack.callback(writing.cancel_scope.cancel)
        self._live.tasks = await self._stack.enter_async_context(anyio.create_task_group())
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.move_on_after(STOPPING, shield=True):
            async with anyio.create_task_group() as stopping:
                for live in self._live.all:
                    stopping.start_soon(live.stop_process)
            await self._deps.recorder.flush()
        self._live.close()
        await self._stack.aclose()

    async def _find_interrupted(self) -> None:
        """Mark sessions that were in a turn when this crib ended as interrupted. Nodes continue them instead."""
        for session in () if self._store.shared else await load_unfinished(self._store, self._crib):
            await self._interrupt(session, "The crib stopped during a turn. Send a message to continue.")

    async def _interrupt(self, session: Session, reason: str) -> None:
        """End the unfinished turn of a session that no process answers."""
        log, left = self._live.log(session), await self._close_items(session)
        if left.waiting:
            reason += f" Queued messages were not answered; send the last {left.waiting} again."
        session = replace(session, state="interrupted", reason=reason)
        log.add("session_status", status(session))
        log.add("done", {"reason": "interrupted"})
        self._deps.recorder.change(replace(session, last_seq=log.numbered))
        await self._deps.recorder.write()

    async def _close_items(self, session: Session) -> OpenItems:
        """Close everything that the unfinished turn of a session left open."""
        log, left = self._live.log(session), OpenItems()
        left.take([event async for event in self.transcript(session.id)])
        for end in left.closing_events(_STOPPED):
            log.add(*end)
        return left

    async def take_over(self, id: str) -> bool:
        """Continue the turn that another crib left unfinished; return False if there is nothing to continue."""
        async with self._live.opening:
            await self._live.unless_abandoned(id)
            found = None if id in self._live else await load_session(self._store, id)
            if found is None or found[0].state not in UNFINISHED or await self._live.is_alive_elsewhere(found[1]):
                return False
            session = await self._live.claim(*found)
            try:
                await self._check_continues(session)
            except ToolcribError as error:
                await self._interrupt(session, f"The node stopped during a turn. {error.message}")
                return False
            left = await self._close_items(session)
            self._live.log(session).add("session_status", status(replace(session, state="starting", reason=CONTINUED)))
            live = LiveSession(
                replace(session, last_seq=self._live.log(session).numbered), self._live.log(session), self._deps
            )
            for message, text in continuing_prompts(session, left):
                live.requeue(message, text)
            self._live.start(live)
        return True

    async def _check_continues(self, session: Session) -> None:
        """Raise if this crib cannot continue a session."""
        self._stop_switch.check()
        await self.check_creator(session.creator)
        await anyio.to_thread.run_sync(resolved_directory, session.cwd)
        await self._live.make_room()

    def abandon_all(self) -> None:
        """End all processes and write nothing more: the lease of this crib has ended."""
        for live in self._live.all:
            live.abandon()

    async def give_away(self, defer: Callable[[str], Awaitable[None]]) -> None:
        """Give all sessions away: any crib may use them, and `defer` has another one continue those in a turn."""
        async with self._live.opening:
            live = self._live.all
            await self._deps.recorder.flush()
            for each in live:
                is_busy = each.is_busy
                each.abandon()
                with anyio.move_on_after(STOPPING):
                    await each.ended.wait()
                await claim_session(self._store, each.session.id, "", each.log.epoch)
                if is_busy:
                    await defer(each.session.id)

    def held_epoch(self, id: str) -> int | None:
        """Return the epoch of a session that this crib runs."""
        live = self._live.get(id)
        return live.log.epoch if live is not None else None

    async def create(self, new: NewSession) -> Session:
        """Create a session; its process starts with the first prompt. Raises `agent.unknown`, `session.cwd`, …"""
        self._stop_switch.check()
        await self.check_creator(new.creator)
        new = await self._with_defaults(new)
        agent = await self._agent(new.agent) if new.agent is not None else None
        self._deps.runner(new.runner or self._default_runner)
        session = await anyio.to_thread.run_sync(self.draft, new, agent)
        await self._inherit_marks(session, new.resume)
        await self._store_new("sessions.create", session, partial(insert_session, self._store, session, self._crib))
        self._deps.on_change(session)
        return session

    async def _inherit_marks(self, session: Session, history: str | None) -> None:
        """Give a session the marks of its creator and of the session that recorded the history it starts with."""
        if session.creator is not None:
            await self._deps.gate.marks.copy(session.creator, session.principal)
        if history is not None and (earlier := await session_of_runtime(self._store, history)) is not None:
            await self._deps.gate.marks.copy(earlier.principal, session.principal)

    async def _store_new(self, kind: str, session: Session, work: Callable[[], Awaitable[None]]) -> None:
        """Store a new session, with an audit record if its mode skips approvals."""
        if session.mode not in _WITHOUT_APPROVAL:
            await work()
            return
        record: JsonObject = {"id": session.id, "agent": session.agent, "source": session.source, "mode": session.mode}
        if session.creator is not None:
            record["creator"] = session.creator.to_json()
        await self._changes.record(kind, {**record, "cwd": session.cwd}, work)

    async def check_creator(self, creator: Principal | None) -> None:
        """Load the current modes of the creator chain; raises `session.revoked`."""
        for id in self._creators.unknown_sessions(creator):
            live = self._live.get(id)
            found = live.session if live is not None else (await load_session(self._store, id) or (None,))[0]
            if found is not None:
                self._creators.learn(id, found.mode)
        if (revoked := self._creators.revoked(creator)) is not None:
            raise Denied("session.revoked", revoked)

    async def end_revoked(self) -> None:
        """End the live sessions whose creator was revoked."""
        for live in self._live.all:
            why = self._creators.revoked(live.session.creator)
            if why is not None:
                if live.is_busy:
                    live.emit("error", Failure("session.revoked", why).to_json())
                live.stop(why)
                await self.close(live.session.id, why)

    async def _with_defaults(self, new: NewSession) -> NewSession:
        """Resolve the directory, and choose the project's default agent if none is named."""
        cwd = await anyio.to_thread.run_sync(resolved_directory, new.cwd or self._default_cwd())
        agent = new.agent if new.agent is not None or new.resume is not None else self._default_agent(cwd)
        return replace(new, cwd=cwd, agent=agent)

    def draft(self, new: NewSession, agent: Agent | None) -> Session:
        """Return a new session without storing it."""
        return draft_session(new, agent, self._default_cwd, self._default_runner)

    async def list(self, wanted: SessionFilter = EVERY) -> list[Session]:
        """Return sessions, most recently used first."""
        found = await load_sessions(self._store, wanted)
        return [live.session if (live := self._live.get(each.id)) is not None else each for each in found]

    async def count_matching(self, wanted: SessionFilter = EVERY) -> int:
        """Return the number of all matching sessions."""
        return await count_matching(self._store, wanted)

    async def get(self, id: str) -> Session:
        """Return the session; raises `session.unknown`."""
        live = self._live.get(id)
        return live.session if live is not None else (await self._live.load(id))[0]

    async def resolve(self, prefix: str) -> str:
        """Return the unique id with this prefix; raises `session.unknown` if there is none or more than one."""
        found = await matching_sessions(self._store, prefix)
        if prefix in found or len(found) == 1:
            return prefix if prefix in found else found[0]
        more = f"{len(found)} sessions start with" if found else "There is no session"
        raise NotFound("session.unknown", f"{more} {prefix!r}.")

    def active(self) -> tuple[Session, ...]:
        """Return the sessions that have a process or pending work."""
        return tuple(live.session for live in self._live.all)

    def servers_changed(self) -> None:
        """Check the servers of all live sessions for changed states."""
        for live in self._live.all:
            live.check_servers()

    def runtimes(self) -> set[str]:
        """Return the ids under which runtimes currently record sessions."""
        return {id for live in self._live.all if (id := live.writes_as) is not None}

    async def count(self, cwd: str) -> int:
        """Return the number of sessions in a directory."""
        return await count_sessions(self._store, cwd)

    async def send(self, id: str, content: str) -> SessionEvent:
        """Queue a prompt; return its event once stored. Raises `session.unknown`, `session.too_many`, …"""
        if not content.strip() or len(content) > LONGEST_PROMPT:
            what = "empty" if not content.strip() else f"longer than {LONGEST_PROMPT} characters"
            raise InvalidRequest("session.message", f"The message is {what}.")
        if (remote := await self._elsewhere(id)) is not None:
            return await remote.send(content)
        async with self._live.opening:
            self._stop_switch.check()
            live = await self._live.unless_abandoned(id) or await self._make_live(id)
            if live.queued >= MOST_QUEUED:
                raise Unavailable("session.too_many", f"The session already has {MOST_QUEUED} queued messages.")
            event = live.send(content)
        await self._deps.recorder.flush()
        return event

    async def interrupt(self, id: str) -> bool:
        """Interrupt the running turn; return False if there is none."""
        live = self._live.get(id)
        if live is not None:
            return await live.interrupt()
        remote = await self._elsewhere(id)
        return False if remote is None else await remote.interrupt()

    async def extend(self, id: str, seconds: float) -> float:
        """Extend the running turn, see `LiveSession.extend`. Also raises `session.unknown`."""
        live = self._live.get(id)
        if live is None:
            await self._live.load(id)
            raise Conflict("session.extend", "No turn is running.")
        return live.extend(seconds)

    async def change(
        self, id: str, *, mode: Mode | None = None, model: str | None = None, title: str | None = None
    ) -> Session:
        """Change the given values, even during a turn. A mode change is audited before it takes effect."""
        if (remote := await self._elsewhere(id)) is not None:
            given = {"mode": mode, "model": model, "title": title}
            await remote.change({key: value for key, value in given.items() if value is not None})
            return await self.get(id)
        before = (await self.get(id)).mode
        if mode is None or mode == before:
            return await self._apply_change(id, None, model, title)
        record: JsonObject = {"id": id, "before": before, "after": mode}
        return await self._changes.record("sessions.mode", record, lambda: self._apply_change(id, mode, model, title))

    async def _apply_change(self, id: str, mode: Mode | None, model: str | None, title: str | None) -> Session:
        live = self._live.get(id)
        if live is not None:
            await live.change(mode=mode, model=model, title=title)
            self._creators.set_mode(id, live.session.mode)
            await self._deps.recorder.flush()
            return live.session
        session = await self._live.claim(*await self._live.load(id))
        given = {"mode": mode, "model": model, "title": title}
        session = replace(session, **{key: value for key, value in given.items() if value is not None})
        self._creators.set_mode(id, session.mode)
        log = self._live.log(session)
        log.add("session_status", status(session))
        session = replace(session, updated_at=datetime.now(UTC), last_seq=log.numbered)
        self._deps.recorder.change(session)
        await self._deps.recorder.flush()
        self._deps.on_change(session)
        return session

    async def fork(self, id: str, title: str | None = None) -> Session:
        """Create a session that starts with this one's history; source and limits are the same."""
        self._stop_switch.check()
        if (remote := await self._elsewhere(id)) is not None:
            return await self.get(await remote.fork(title))
        await self._deps.recorder.flush()
        parent = await self.get(id)
        await self._deps.recorder.catch_up(self._live.log(parent))
        now = datetime.now(UTC)
        session = replace(
            parent,
            id=str(uuid.uuid4()),
            created_at=now,
            updated_at=now,
            title=title or (f"{parent.title} (fork)" if parent.title else None),
            state="idle",
            reason=None,
            forked_from=parent.id,
            is_fork_due=parent.runtime is not None,
            spent=Spent(),
            last_seq=self._live.log(parent).last,
        )
        await self._deps.gate.marks.copy(parent.principal, session.principal)
        fork = partial(insert_fork, self._store, session, self._crib, parent.id)
        await self._store_new("sessions.fork", session, fork)
        self._deps.on_change(session)
        return session

    async def close(self, id: str, reason: str | None = None) -> Session:
        """End the process of a session; a later prompt starts a new one."""
        await self._live.end(id)
        session = await self._live.claim(*await self._live.load(id))
        log = self._live.log(session)
        session = replace(session, state="closed", reason=reason)
        log.add("session_status", status(session))
        session = replace(session, updated_at=datetime.now(UTC), last_seq=log.numbered)
        self._deps.recorder.change(session)
        await self._deps.recorder.flush()
        self._deps.on_change(session)
        return session

    async def hand_over(self, id: str, runner: str, forked_from: str) -> Session:
        """Continue a session with another runtime, which can resume it, as a fork of the session that it replayed."""
        await self._live.end(id)
        session = replace((await self._live.load(id))[0], runner=runner, forked_from=forked_from)
        await self._inherit_marks(session, forked_from)
        self._deps.recorder.change(session)
        await self._deps.recorder.flush()
        self._deps.on_change(session)
        return session

    async def stop_all(self, reason: str) -> int:
        """End all processes and turns, and drop queued prompts; return the number of sessions."""
        async with self._live.opening:  # prompts accepted earlier have their live session by now
            live = self._live.all
        async with anyio.create_task_group() as stopping:
            for each in live:
                each.stop(reason)
                stopping.start_soon(each.stop_process)
        await self._deps.recorder.flush()
        return len(live)

    async def delete(self, id: str) -> None:
        """Delete a session with all its events, and end its readers."""
        log = self._live.known_log(id)
        if (remote := await self._elsewhere(id)) is not None:
            session = await self.get(id)
            await remote.delete()
        else:
            session = await self.close(id)
            log = log or self._live.known_log(id)
            await delete_session(self._store, id)
        await self._deps.gate.marks.forget(id)
        self._views.drop(id)
        if log is not None:
            log.close()
        self._deps.on_change(session)

    async def events(self, id: str) -> SessionLog:
        """Return the event log of a session."""
        live = self._live.get(id)
        if live is not None:
            return live.log
        session, _ = await self._live.load(id)
        log = self._live.log(session)
        log.advance(session.last_seq)
        return log

    async def view(self, id: str) -> ConversationView:
        """Return a session's conversation as display items, up to the newest stored event."""
        return await self._views.get(id)

    async def transcript(self, id: str, after: int = 0) -> AsyncIterator[SessionEvent]:
        """Yield the stored events of a session after this number."""
        last = (await self.events(id)).last
        async for event in self._deps.recorder.stored(id, after, last):
            yield event

    async def questions(self) -> tuple[AgentQuestion, ...]:
        """Return the open questions of agents, on all nodes of the database."""
        return await self._deps.questions.pending()

    async def ask(
        self, principal: Principal, questions: Sequence[JsonObject], tool_call: str, seconds: float
    ) -> Mapping[str, str]:
        """Ask the person questions on behalf of a tool's caller; return no answers after a timeout."""
        live = self._live.get(principal.session or "")
        emit = live.emit if live is not None else _ignore_event
        return await self._deps.questions.put(principal, questions, tool_call, seconds, emit)

    async def answer(self, question: str, answers: Mapping[str, Json], *, by: Principal) -> Mapping[str, str]:
        """Answer a question; raises `question.unknown`, `question.answered`, `question.answer`."""
        return await self._deps.questions.answer(question, answers, by=by)

    def changed_elsewhere(self, id: str) -> None:
        """Have the readers of a session look for events that another crib has written."""
        log = self._live.known_log(id)
        if log is not None and id not in self._live:
            log.changed_elsewhere()

    def on_approval(self, kind: str, data: JsonObject) -> None:
        """Add an approval's request or outcome to the log of its session."""
        live = self._live.get(str(data.get("sessionId")))
        if live is not None:
            details = {key: value for key, value in data.items() if key != "sessionId"}
            live.emit("approval_required" if kind == "approval_required" else "approval_resolved", details)

    @asynccontextmanager
    async def open(self, new: NewSession) -> AsyncGenerator[OpenSession]:
        """Open a session for a program and end its process afterwards; its events are kept."""
        session = await self.create(new)
        try:
            yield OpenSession(self, session.id)
        finally:
            with anyio.move_on_after(STOPPING, shield=True):
                await self._live.end(session.id)

    async def _elsewhere(self, id: str) -> RemoteSession | None:
        """Return the session if another node runs it. Raises `session.unknown`."""
        if id in self._live:
            return None
        _, node = await self._live.load(id)
        return await self._remote.on(node, id) if self._remote is not None and node != self._crib else None

    async def _make_live(self, id: str) -> LiveSession:
        session, crib = await self._live.load(id)
        await self.check_creator(session.creator)
        session = await self._live.claim(session, crib)
        await self._live.make_room()
        live = LiveSession(session, self._live.log(session), self._deps)
        self._live.start(live)
        return live


def _ignore_event(kind: SessionEventKind, data: JsonObject, parent: str | None) -> None:
    """Ignore the event: a caller outside a session has no event log."""
