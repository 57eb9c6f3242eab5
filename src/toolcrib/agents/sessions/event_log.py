"""The event logs of sessions: events are numbered when added, stored before they become visible, and read in order.

One recorder writes for all sessions: events added since its last transaction go into the next one, together with the
sessions' current states. Consecutive pieces of a text are merged meanwhile. Readers start at any number: old events
come from the store, new ones from memory, without gaps or duplicates.

Must never show an event that could still be lost.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import anyio

from toolcrib.model.errors import NotFound, Unavailable
from toolcrib.model.json import JsonObject, storable
from toolcrib.model.sessions import Session, SessionEvent, SessionEventKind
from toolcrib.store.batch import ConstraintError
from toolcrib.store.engine import Store
from toolcrib.store.sessions import load_events, write_progress

PAGE = 1_000
"""Old events read per query."""
RECENT = 5_000
"""Recent events kept in memory per session; briefly up to twice as many."""
DELTA_SECONDS: Final = 0.03
"""Seconds for which pieces of a text are collected before they are written."""
_RETRY = 1.0
_POLL_SECONDS = 1.0
"""Seconds between polls for events written by another crib on the same database."""
_PIECES: Final = {
    "text_delta": ("messageId", "text"),
    "thinking_delta": ("messageId", "text"),
    "tool_call_delta": ("toolCallId", "partialJson"),
}
"""Per kind: the member that identifies the text, and the member with the piece."""

logger = logging.getLogger(__name__)


def ignore() -> None:
    """Do nothing."""


class SessionLog:
    """The events of one session. `last` is the number of the newest stored event, `epoch` that of the session.

    `on_fenced` is called when another crib has claimed the session: what this one adds is dropped.
    """

    def __init__(self, recorder: "Recorder", session: str, last: int) -> None:
        self.session = session
        self.last = last
        self.epoch = 0
        self.on_fenced: Callable[[], None] = ignore
        self.readers = 0
        self.is_stale = False
        """Whether another crib on the same database has added events."""
        self._recorder = recorder
        self._numbered = last
        self._unwritten: list[SessionEvent] = []
        self._recent: list[SessionEvent] = []
        self._updated = anyio.Event()
        self._closed = False

    @property
    def numbered(self) -> int:
        """Return the number of the newest event, stored or not."""
        return self._numbered

    def add(self, kind: SessionEventKind, data: JsonObject, parent: str | None = None) -> SessionEvent:
        """Add an event; a piece of a text is merged with the previous piece if that is still unwritten."""
        data = storable(data)  # a model may emit what JSON cannot represent; this must not stop the log
        if kind in _PIECES and (joined := self._join(kind, data, parent)) is not None:
            self._unwritten[-1] = joined
            return joined
        self._numbered += 1
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        event = SessionEvent(self._numbered, at, self.session, kind, data, parent)
        self._unwritten.append(event)
        self._recorder.take(self, is_piece=kind in _PIECES)
        return event

    def _join(self, kind: SessionEventKind, data: JsonObject, parent: str | None) -> SessionEvent | None:
        before = self._unwritten[-1] if self._unwritten else None
        owner, piece = _PIECES[kind]
        if before is None or (before.kind, before.parent) != (kind, parent) or before.data[owner] != data[owner]:
            return None
        return replace(before, data={**before.data, piece: f"{before.data[piece]}{data[piece]}"})

    def take_unwritten(self) -> list[SessionEvent]:
        """Return the unwritten events and hand them over to the recorder."""
        unwritten, self._unwritten = self._unwritten, []
        return unwritten

    def publish(self, events: Iterable[SessionEvent]) -> None:
        """Make stored events visible to readers."""
        self._recent.extend(events)
        if len(self._recent) > 2 * RECENT:
            del self._recent[:-RECENT]
        self.last = self._recent[-1].seq if self._recent else self.last
        self._wake()

    def adopt(self, events: Iterable[SessionEvent]) -> None:
        """Add events that another crib has written."""
        self.publish(events)
        self._numbered = self.last

    def advance(self, last: int) -> None:
        """Continue after the newest event that another crib has stored."""
        if last > self._numbered:
            self._recent.clear()
            self.last = self._numbered = last
            self._wake()

    def drop_unwritten(self) -> None:
        """Forget the events that are not stored: another crib writes this log now."""
        self._unwritten.clear()
        self._numbered = self.last

    def changed_elsewhere(self) -> None:
        """Have the readers look for new events in the store now: another crib has written some."""
        self.is_stale = True
        self._wake()

    def close(self) -> None:
        """End every reader once it has read the remaining events."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        updated, self._updated = self._updated, anyio.Event()
        updated.set()

    def check(self, after: int | None) -> None:
        """Raise `feed.gone` for an event number that does not exist yet."""
        if after is not None and after > self._numbered:
            raise NotFound("feed.gone", f"Session {self.session} has {self.last} events, and none after {after}.")

    async def follow(
        self, after: int | None = None, *, is_person: bool = True
    ) -> AsyncGenerator[tuple[SessionEvent, ...]]:
        """Yield batches of events after this number; None starts with the next event, 0 with the first.

        Questions stay open longer while a person reads; programs pass `is_person=False`.
        """
        self.check(after)
        seen = self.last if after is None else after
        self.readers += is_person
        try:
            while True:
                updated = self._updated
                if batch := await self._after(seen):
                    seen = batch[-1].seq
                    yield batch
                elif self._closed:
                    return
                else:
                    await self._recorder.wait(updated, self)
        finally:
            self.readers -= is_person

    async def _after(self, seen: int) -> tuple[SessionEvent, ...]:
        if seen >= self.last:
            return ()
        first = self._recent[0].seq if self._recent else self.last + 1
        if seen + 1 >= first:
            return tuple(self._recent[seen + 1 - first :])
        return await self._recorder.read(self.session, seen)


class Recorder:
    """Writes the events of all sessions; `run` must be running while there are any."""

    def __init__(self, store: Store, crib: str, signal: Callable[[str], None] = lambda _: None) -> None:
        """`signal` reports to other cribs on the same database that a session has new events."""
        self._store = store
        self._crib = crib
        self._signal = signal
        self._logs: dict[str, SessionLog] = {}
        self._changed: dict[str, Session] = {}
        self._is_writing = False
        self._work = anyio.Event()
        self._urgent = anyio.Event()
        self._written = anyio.Event()

    def take(self, log: SessionLog, *, is_piece: bool) -> None:
        """Schedule a log's events for writing."""
        self._logs[log.session] = log
        self._work.set()
        if not is_piece:
            self._urgent.set()

    def change(self, session: Session) -> None:
        """Schedule a session's new state for writing, together with the events added so far."""
        self._changed[session.id] = session
        self._work.set()
        self._urgent.set()

    async def flush(self) -> None:
        """Wait until everything added so far is stored."""
        self._urgent.set()
        while self._logs or self._changed or self._is_writing:
            await self._written.wait()

    async def read(self, session: str, after: int) -> tuple[SessionEvent, ...]:
        """Return stored events."""
        return tuple(await load_events(self._store, session, after, PAGE))

    async def stored(self, session: str, after: int, last: int) -> AsyncGenerator[SessionEvent]:
        """Yield the stored events after one number up to another."""
        while after < last and (page := await self.read(session, after)):
            for event in page:
                yield event
            after = page[-1].seq

    async def wait(self, updated: anyio.Event, log: SessionLog) -> None:
        """Wait for new events of a session; polls the store if other cribs share it."""
        if not self._store.shared:
            return await updated.wait()
        with anyio.move_on_after(_POLL_SECONDS):
            await updated.wait()
            if not log.is_stale:
                return None
        log.is_stale = False
        await self.catch_up(log)
        return None

    async def catch_up(self, log: SessionLog) -> None:
        """Add all events that another crib has written, unless this crib is writing some itself."""
        while log.last == log.numbered:
            found = await self.read(log.session, log.last)
            new = [event for event in found if event.seq > log.last]
            if not new or log.last != log.numbered:
                return
            log.adopt(new)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._work.wait()
            with anyio.move_on_after(DELTA_SECONDS):
                await self._urgent.wait()
            await self.write()

    async def write(self) -> None:
        """Write everything added so far."""
        self._work, self._urgent = anyio.Event(), anyio.Event()
        logs, self._logs = self._logs, {}
        changed, self._changed = self._changed, {}
        batches = [(log, events) for log in logs.values() if (events := log.take_unwritten())]
        self._is_writing = True
        try:
            await self._store_batches(batches, list(changed.values()))
        finally:
            self._is_writing = False
            written, self._written = self._written, anyio.Event()
            written.set()

    async def _store_batches(
        self, batches: list[tuple[SessionLog, list[SessionEvent]]], changed: list[Session]
    ) -> None:
        """Write, retrying until it succeeds; drop sessions that were deleted or taken over by another crib."""
        try:
            epochs = {log.session: log.epoch for log, _ in batches}
            await self._write([event for _, events in batches for event in events], changed, epochs)
        except ConstraintError:
            for log, events in batches:
                await self._store_batch(log, events, [each for each in changed if each.id == log.session])
            return
        for log, events in batches:
            log.publish(events)

    async def _store_batch(self, log: SessionLog, events: list[SessionEvent], changed: list[Session]) -> None:
        try:
            await self._write(events, changed, {log.session: log.epoch})
        except ConstraintError:
            logger.warning("Session %s was deleted or taken over; its unwritten events are dropped.", log.session)
            log.drop_unwritten()
            log.on_fenced()
            if not self._store.shared:
                log.close()
        else:
            log.publish(events)

    async def _write(self, events: list[SessionEvent], changed: list[Session], epochs: dict[str, int]) -> None:
        is_logged = False
        while True:
            try:
                await write_progress(self._store, events, changed, self._crib, epochs)
                for session in {event.session for event in events}:
                    self._signal(session)
                return
            except Unavailable as error:
                if not is_logged:
                    logger.warning("Could not store session events, retrying: %s", error)
                is_logged = True
                await anyio.sleep(_RETRY)
