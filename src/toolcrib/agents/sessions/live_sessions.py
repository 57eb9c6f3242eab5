"""The sessions that are live in this crib, and the claims that keep other cribs from running them.

Invariant: a session is live only once. Two processes on one conversation would lose messages.
"""

from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

import anyio
from anyio.abc import TaskGroup

from toolcrib.agents.sessions.event_log import SessionLog
from toolcrib.agents.sessions.live_session import LiveSession, SessionDeps
from toolcrib.model.errors import Conflict, NotFound, Unavailable
from toolcrib.model.sessions import Session
from toolcrib.store.engine import Store
from toolcrib.store.sessions import claim_session, load_session


class LiveSessions:
    """Starts and ends the processes of sessions. `opening` is held while one becomes live; set `tasks` before that."""

    tasks: TaskGroup

    def __init__(
        self,
        store: Store,
        deps: SessionDeps,
        *,
        crib: str,
        most_at_once: int,
        is_alive: Callable[[str], Awaitable[bool]],
    ) -> None:
        self.opening = anyio.Lock()
        self._store = store
        self._deps = deps
        self._crib = crib
        self._most = most_at_once
        self._is_alive = is_alive
        self._live: dict[str, LiveSession] = {}
        self._logs: WeakValueDictionary[str, SessionLog] = WeakValueDictionary()

    @property
    def all(self) -> tuple[LiveSession, ...]:
        """The live sessions."""
        return tuple(self._live.values())

    def __contains__(self, id: str) -> bool:
        return id in self._live

    def get(self, id: str) -> LiveSession | None:
        """Return the live session with this id."""
        return self._live.get(id)

    async def unless_abandoned(self, id: str) -> LiveSession | None:
        """Return the live session; waits until a session that this crib gave up has ended its process."""
        live = self._live.get(id)
        if live is not None and live.is_abandoned:
            await live.ended.wait()
            return None
        return live

    async def load(self, id: str) -> tuple[Session, str]:
        """Return the stored session and the crib that runs it. Raises `session.unknown`."""
        found = await load_session(self._store, id)
        if found is None:
            raise NotFound("session.unknown", f"There is no session {id!r}.")
        return found

    def log(self, session: Session) -> SessionLog:
        """Return the event log of a session, one object while it is in use."""
        log = self._logs.get(session.id)
        if log is None:
            log = self._logs[session.id] = SessionLog(self._deps.recorder, session.id, session.last_seq)
            log.epoch = session.epoch
        return log

    def known_log(self, id: str) -> SessionLog | None:
        """Return the event log of a session if it is in use."""
        return self._logs.get(id)

    async def claim(self, session: Session, crib: str) -> Session:
        """Return the session once only this crib may write its events. Raises `session.elsewhere`.

        In a database that only this crib uses, nothing has to be claimed.
        """
        if not self._store.shared:
            return session
        elsewhere = Conflict("session.elsewhere", f"Session {session.id} is running in another crib.")
        is_ended = session.state in ("closed", "failed")
        if not is_ended and await self.is_alive_elsewhere(crib):
            raise elsewhere
        if not await claim_session(self._store, session.id, self._crib, session.epoch):
            raise elsewhere
        claimed, _ = await self.load(session.id)  # the previous crib may have written until the claim
        log = self.log(claimed)
        log.epoch = claimed.epoch
        await self._deps.recorder.catch_up(log)
        return claimed

    async def is_alive_elsewhere(self, crib: str) -> bool:
        """Return whether another crib than this one runs under this id."""
        return crib not in ("", self._crib) and await self._is_alive(crib)

    async def make_room(self) -> None:
        """End the longest idle process if the session limit is reached. Raises `session.too_many`."""
        if len(self._live) < self._most:
            return
        idle = [live for live in self._live.values() if not live.is_busy]
        if not idle:
            raise Unavailable("session.too_many", f"Session limit reached: {len(self._live)} sessions are running.")
        await min(idle, key=lambda live: live.session.updated_at).stop_process()

    def start(self, live: LiveSession) -> None:
        """Run a session in the background until its process ends."""
        self._live[live.session.id] = live
        self.tasks.start_soon(self._run, live)

    async def _run(self, live: LiveSession) -> None:
        try:
            await live.run()
        finally:
            if self._live.get(live.session.id) is live:
                del self._live[live.session.id]

    async def end(self, id: str) -> None:
        """End the process of a session and store its events."""
        live = self._live.get(id)
        if live is not None:
            await live.stop_process()
        await self._deps.recorder.flush()

    def close(self) -> None:
        """Cancel all sessions and end the readers of their events."""
        self.tasks.cancel_scope.cancel()
        for log in tuple(self._logs.values()):
            log.close()
