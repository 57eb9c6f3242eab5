"""All sessions of a crib: made, spoken to, steered, read, forked, removed.

The store has every session; those with something to do, or with a process, are also live here. A session that was in
the middle of a turn when the crib ended is found as interrupted, and goes on with the next prompt.

Above: every door, and tools that start sessions. Below: live sessions, the store. It must never let a session be live
twice: two processes on one conversation lose what one of them says.
"""

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Self
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from toolcrib.errors import Conflict, InvalidRequest, NotFound, Unavailable
from toolcrib.model.agents import Agent
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Mode, Principal, Source
from toolcrib.model.sessions import (
    NO_LIMITS,
    AgentQuestion,
    Session,
    SessionEvent,
    SessionEventKind,
    SessionLimits,
    Spent,
)
from toolcrib.sessions.live import House, LiveSession, status
from toolcrib.sessions.log import SessionLog
from toolcrib.sessions.loose_ends import LooseEnds
from toolcrib.store.engine import Store
from toolcrib.store.sessions import (
    SessionFilter,
    count_sessions,
    delete_session,
    insert_fork,
    insert_session,
    load_session,
    load_sessions,
    load_unfinished,
    matching_sessions,
)

LONGEST_PROMPT: Final = 1_000_000
"""Characters."""
MOST_QUEUED: Final = 100
EVERY: Final = SessionFilter()
_STOPPING: Final = 10.0
"""Seconds in which sessions end when the crib does."""
_CUT_SHORT: Final = "The crib ended before this did."
_HELD: Final = timedelta(minutes=15)
"""For so long after its last word a session is taken to be at another crib on the same database."""


@dataclass(frozen=True, slots=True)
class NewSession:
    """What a session is made of; what is not said is the agent's choice, else the crib's.

    `resume` is the id of a conversation that the runtime has kept by itself, to go on with.
    """

    source: Source
    cwd: str | None = None
    agent: str | None = None
    mode: Mode | None = None
    model: str | None = None
    title: str | None = None
    runner: str | None = None
    limits: SessionLimits = NO_LIMITS
    resume: str | None = None
    creator: Principal | None = None


class Sessions:
    """`async with Sessions(…) as sessions`."""

    def __init__(
        self,
        store: Store,
        house: House,
        *,
        crib: str,
        agent: Callable[[str], Awaitable[Agent]],
        default_cwd: Callable[[], str],
        most_at_once: int,
        default_runner: str = "claude",
    ) -> None:
        """`agent` gives an agent of the zoo or raises; `most_at_once` is how many sessions may have a process."""
        self._store = store
        self._house = house
        self._crib = crib
        self._agent = agent
        self._default_cwd = default_cwd
        self._most = most_at_once
        self._default_runner = default_runner
        self._live: dict[str, LiveSession] = {}
        self._logs: WeakValueDictionary[str, SessionLog] = WeakValueDictionary()
        self._opening = anyio.Lock()
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup

    async def __aenter__(self) -> Self:
        await self._find_interrupted()
        recorder = self._house.recorder
        writing = await self._stack.enter_async_context(anyio.create_task_group())
        writing.start_soon(recorder.run)
        self._stack.callback(writing.cancel_scope.cancel)
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.move_on_after(_STOPPING, shield=True):
            async with anyio.create_task_group() as stopping:
                for live in tuple(self._live.values()):
                    stopping.start_soon(_stop, live)
            await self._house.recorder.settled()
        self._tasks.cancel_scope.cancel()
        for log in tuple(self._logs.values()):
            log.close()
        await self._stack.aclose()

    async def _find_interrupted(self) -> None:
        """Say of every session that was in the middle of a turn when this crib ended that it was."""
        for session in await load_unfinished(self._store, self._crib):
            log = self._log(session)
            ends = LooseEnds()
            async for event in self.transcript(session.id):
                ends.take((event,))
            for end in ends.tied(_CUT_SHORT):
                log.tell(*end)
            reason = "The crib ended in the middle of a turn. Send a message to go on."
            if ends.waiting:
                reason += f" Send again what waited for its end and was not answered: the last {ends.waiting}."
            session = replace(session, state="interrupted", reason=reason)
            log.tell("session_status", status(session))
            log.tell("done", {"reason": "interrupted"})
            self._house.recorder.change(replace(session, last_seq=log.numbered))
            await self._house.recorder.write()

    async def create(self, new: NewSession) -> Session:
        """Make a session; its process starts with the first prompt. Raises `agent.unknown`, `session.cwd`, …"""
        agent = await self._agent(new.agent) if new.agent is not None else None
        self._house.runner(new.runner or self._default_runner)
        session = await anyio.to_thread.run_sync(self.drafted, new, agent)
        await insert_session(self._store, session, self._crib)
        self._house.on_change(session)
        return session

    def drafted(self, new: NewSession, agent: Agent | None) -> Session:
        """A session as it would begin, kept nowhere."""
        now = datetime.now(UTC)
        return Session(
            id=str(uuid.uuid4()),
            source=new.source,
            mode=new.mode or (agent.mode if agent is not None and agent.mode else "default"),
            cwd=_directory(new.cwd or self._default_cwd()),
            created_at=now,
            updated_at=now,
            agent=new.agent,
            model=new.model or (agent.model if agent is not None else None),
            title=new.title,
            runner=new.runner or self._default_runner,
            runtime=new.resume,
            creator=new.creator,
            limits=new.limits,
        )

    async def list(self, wanted: SessionFilter = EVERY) -> list[Session]:
        """Sessions, the one that was last used first."""
        found = await load_sessions(self._store, wanted)
        return [self._live[each.id].session if each.id in self._live else each for each in found]

    async def get(self, id: str) -> Session:
        """One session; raises `session.unknown`."""
        live = self._live.get(id)
        return live.session if live is not None else (await self._load(id))[0]

    async def resolve(self, prefix: str) -> str:
        """The one id that begins like this; raises `session.unknown`, also where there are several."""
        found = await matching_sessions(self._store, prefix)
        if prefix in found or len(found) == 1:
            return prefix if prefix in found else found[0]
        more = f"{len(found)} sessions begin with" if found else "There is no session"
        raise NotFound("session.unknown", f"{more} {prefix!r}.")

    def active(self) -> tuple[Session, ...]:
        """The sessions that have a process or something to do."""
        return tuple(live.session for live in self._live.values())

    async def count(self, cwd: str) -> int:
        """How many sessions a directory has here."""
        return await count_sessions(self._store, cwd)

    async def send(self, id: str, content: str) -> SessionEvent:
        """Put a prompt; gives its event once that is durable. Raises `session.unknown`, `session.busy`, …"""
        if not content.strip() or len(content) > LONGEST_PROMPT:
            what = "empty" if not content.strip() else f"longer than {LONGEST_PROMPT} characters"
            raise InvalidRequest("session.message", f"The message is {what}.")
        async with self._opening:
            live = self._live.get(id) or await self._revive(id)
            if live.queued >= MOST_QUEUED:
                raise Unavailable("session.too_many", f"{MOST_QUEUED} messages wait for this session already.")
            event = live.send(content)
        await self._house.recorder.settled()
        return event

    async def interrupt(self, id: str) -> bool:
        """End the running turn; false if there is none."""
        live = self._live.get(id)
        if live is None:
            await self._load(id)
            return False
        return await live.interrupt()

    async def extend(self, id: str, seconds: float) -> float:
        """Give the running turn more time; see `LiveSession.extend`. Raises `session.unknown` too."""
        live = self._live.get(id)
        if live is None:
            await self._load(id)
            raise Conflict("session.extend", "No turn is running.")
        return live.extend(seconds)

    async def change(
        self, id: str, *, mode: Mode | None = None, model: str | None = None, title: str | None = None
    ) -> Session:
        """Change what is given, also while a turn runs."""
        live = self._live.get(id)
        if live is not None:
            await live.change(mode=mode, model=model, title=title)
            await self._house.recorder.settled()
            return live.session
        session, _ = await self._load(id)
        given = {"mode": mode, "model": model, "title": title}
        session = replace(session, **{key: value for key, value in given.items() if value is not None})
        log = self._log(session)
        log.tell("session_status", status(session))
        session = replace(session, updated_at=datetime.now(UTC), last_seq=log.numbered)
        self._house.recorder.change(session)
        await self._house.recorder.settled()
        self._house.on_change(session)
        return session

    async def fork(self, id: str, title: str | None = None) -> Session:
        """A session that begins with all this one has said, and leaves it alone; source and limits are the same."""
        await self._house.recorder.settled()
        parent = await self.get(id)
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
            last_seq=self._log(parent).last,
        )
        await insert_fork(self._store, session, self._crib, parent.id)
        self._house.on_change(session)
        return session

    async def close(self, id: str) -> Session:
        """End the process of a session; a later prompt starts another one."""
        await self._end(id)
        session, _ = await self._load(id)
        log = self._log(session)
        session = replace(session, state="closed", reason=None)
        log.tell("session_status", status(session))
        session = replace(session, updated_at=datetime.now(UTC), last_seq=log.numbered)
        self._house.recorder.change(session)
        await self._house.recorder.settled()
        self._house.on_change(session)
        return session

    async def delete(self, id: str) -> None:
        """Remove a session with all its events; its readers are told that it is closed."""
        session = await self.close(id)
        log = self._logs.get(id)
        await delete_session(self._store, id)
        if log is not None:
            log.close()
        self._house.on_change(session)

    async def events(self, id: str) -> SessionLog:
        """The record of a session, to be followed."""
        live = self._live.get(id)
        return live.log if live is not None else self._log((await self._load(id))[0])

    async def transcript(self, id: str) -> AsyncIterator[SessionEvent]:
        """Everything that is on record of a session now."""
        last = (await self.events(id)).last
        seen = 0
        while seen < last:
            page = await self._house.recorder.read(id, seen)
            if not page:
                return
            for event in page:
                yield event
            seen = page[-1].seq

    def who(self, id: str) -> Principal | None:
        """Who a session is now that has something to do or a process."""
        live = self._live.get(id)
        return live.principal() if live is not None else None

    def questions(self) -> tuple[AgentQuestion, ...]:
        """What agents ask the person they work for."""
        return self._house.questions.pending()

    async def ask(
        self, asker: Principal, questions: Sequence[JsonObject], tool_call: str, seconds: float
    ) -> Mapping[str, str]:
        """Ask the person something for whoever calls a tool; without answers if nobody gives them in time."""
        live = self._live.get(asker.session or "")
        tell = live.tell if live is not None else _untold
        return await self._house.questions.put(asker, questions, tool_call, seconds, tell)

    async def answer(self, question: str, answers: Mapping[str, Json], *, by: Principal) -> Mapping[str, str]:
        """Answer a question; raises `question.unknown`, `question.answered`, `question.answer`."""
        return self._house.questions.answer(question, answers, by=by)

    def on_approval(self, kind: str, data: JsonObject) -> None:
        """A person is asked, or has answered, about a call of a session."""
        live = self._live.get(str(data.get("sessionId")))
        if live is not None:
            told = {key: value for key, value in data.items() if key != "sessionId"}
            live.tell("approval_required" if kind == "approval_required" else "approval_resolved", told)

    @asynccontextmanager
    async def opened(self, new: NewSession) -> AsyncGenerator["OpenSession"]:
        """A session for a program: made, spoken to, and let go at the end; it stays on record."""
        session = await self.create(new)
        try:
            yield OpenSession(self, session.id)
        finally:
            with anyio.move_on_after(_STOPPING, shield=True):
                await self._end(session.id)

    def _log(self, session: Session) -> SessionLog:
        log = self._logs.get(session.id)
        if log is None:
            log = self._logs[session.id] = SessionLog(self._house.recorder, session.id, session.last_seq)
        return log

    async def _load(self, id: str) -> tuple[Session, str]:
        found = await load_session(self._store, id)
        if found is None:
            raise NotFound("session.unknown", f"There is no session {id!r}.")
        return found

    async def _revive(self, id: str) -> LiveSession:
        session, crib = await self._load(id)
        now = datetime.now(UTC)
        if crib != self._crib and session.updated_at > now - _HELD and session.state not in ("closed", "failed"):
            raise Conflict("session.elsewhere", f"Session {id} is at another crib on the same database.")
        await self._make_room()
        live = LiveSession(session, self._log(session), self._house)
        self._live[id] = live
        self._tasks.start_soon(self._run, live)
        return live

    async def _run(self, live: LiveSession) -> None:
        try:
            await live.run()
        finally:
            if self._live.get(live.session.id) is live:
                del self._live[live.session.id]

    async def _make_room(self) -> None:
        """Let the process go that has been idle for longest, if there are as many as there may be."""
        if len(self._live) < self._most:
            return
        idle = [live for live in self._live.values() if not live.is_busy]
        if not idle:
            raise Unavailable("session.too_many", f"{len(self._live)} sessions are at work, as many as may be.")
        await _stop(min(idle, key=lambda live: live.session.updated_at))

    async def _end(self, id: str) -> None:
        live = self._live.get(id)
        if live is not None:
            await _stop(live)
        await self._house.recorder.settled()


class OpenSession:
    """A session in a program's hands."""

    def __init__(self, sessions: Sessions, id: str) -> None:
        self.id = id
        self._sessions = sessions

    async def send(self, content: str) -> AsyncIterator[SessionEvent]:
        """Put a prompt, and give everything that happens until it is answered."""
        log = await self._sessions.events(self.id)
        sent = await self._sessions.send(self.id, content)
        async for batch in log.follow(sent.seq - 1):
            for event in batch:
                yield event
                if event.kind == "done":
                    return

    async def interrupt(self) -> bool:
        """End the running turn."""
        return await self._sessions.interrupt(self.id)

    async def answer(self, question: str, answers: Mapping[str, Json], *, by: Principal) -> None:
        """Answer a question of the agent, as a person."""
        await self._sessions.answer(question, answers, by=by)


def _untold(kind: SessionEventKind, data: JsonObject, parent: str | None) -> None:
    """Who is in no session has no record of its own."""


async def _stop(live: LiveSession) -> None:
    live.scope.cancel()
    with anyio.move_on_after(_STOPPING):
        await live.ended.wait()


def _directory(cwd: str) -> str:
    """The real path of a directory to work in."""
    path = Path(cwd).expanduser()
    if not path.is_absolute() or not path.is_dir():
        raise InvalidRequest("session.cwd", f"{cwd} is not the full path of a directory.")
    return str(path.resolve())
