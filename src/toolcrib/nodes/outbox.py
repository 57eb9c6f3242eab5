"""The outbox: stores the events of the crib feed in the shared database and numbers them for all nodes.

A node adds its events in batches, on a connection of its own. The row of the counter is locked until the commit, so the
order of the numbers is the order of the commits: a reader that sees a number has seen all smaller ones. A batch and the
read of what other nodes added are one exchange with the database. A signal wakes the other nodes, and so does the poll.

Every event has a key, and a key is stored once. A batch whose commit is uncertain is therefore simply sent again, and
an approval is resolved once, whichever nodes report it.

Must never number an event that could still be lost, or pass on an event before all smaller ones.
"""

import logging
import secrets
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

import anyio
from anyio.abc import TaskGroup

from toolcrib.base.feed import Feed, fresh_start
from toolcrib.model.errors import Unavailable
from toolcrib.model.events import Event
from toolcrib.model.json import dumps, loads, storable
from toolcrib.nodes.signals import Signals
from toolcrib.store.cluster_state import ClusterState
from toolcrib.store.engine import Store
from toolcrib.store.schema import escape

if TYPE_CHECKING:
    from toolcrib.store.side_connection import SideConnection, Sql

logger = logging.getLogger(__name__)

KEPT_EVENTS: Final = 100_000
"""Events in the database; older ones are deleted."""
TOPIC: Final = "events"
_BATCH: Final = 1_000
"""Events written or read at once."""
_MOST_WAITING: Final = 10_000
"""Events that wait for the database; more replace the oldest."""
_FLUSH_SECONDS: Final = 2.0
_RETRY_SECONDS: Final = 0.5
_PRUNE_SECONDS: Final = 300.0
_ONCE: Final[Mapping[str, str]] = {"approval_resolved": "approvalId"}
"""Kinds that several nodes may report, with the member that identifies what they report."""

_BEGIN = "INSERT INTO epochs (name, value) VALUES ('events', %(start)s) ON CONFLICT (name) DO NOTHING"
_LAST = "SELECT value FROM epochs WHERE name = 'events'"
_LOCK = f"{_LAST} FOR UPDATE"
_ADD = """
INSERT INTO events (seq, at, kind, data, node, key)
SELECT (SELECT value FROM epochs WHERE name = 'events') + row_number() OVER (ORDER BY number),
       at, kind, data, %(node)s, key
FROM unnest(%(at)s::text[], %(kind)s::text[], %(data)s::bytea[], %(key)s::text[])
     WITH ORDINALITY AS new (at, kind, data, key, number)
WHERE NOT EXISTS (SELECT 1 FROM events AS old WHERE old.key = new.key)
"""
_COUNT = "UPDATE epochs SET value = greatest(value, (SELECT coalesce(max(seq), 0) FROM events)) WHERE name = 'events'"
_READ = f"SELECT seq, at, kind, data, node FROM events WHERE seq > %(after)s ORDER BY seq LIMIT {_BATCH}"
_PRUNE = f"DELETE FROM events WHERE seq <= (SELECT value FROM epochs WHERE name = 'events') - {KEPT_EVENTS}"


class Outbox:
    """Numbers the events of a feed that all nodes share. Use as `async with`, before anything is published."""

    def __init__(self, store: Store, feed: Feed, signals: Signals, node: str) -> None:
        self._feed = feed
        self._signals = signals
        self._node = escape(node)
        self._line: SideConnection = store.side_connection()
        self._waiting: deque[tuple[str, Event]] = deque(maxlen=_MOST_WAITING)
        self._batch: dict[str, Event] = {}
        self._run = secrets.token_hex(8)
        self._added = 0
        self._due = anyio.Event()
        self._lock = anyio.Lock()
        self._prune_at = anyio.current_time() + _PRUNE_SECONDS
        self._tasks: TaskGroup

    async def __aenter__(self) -> Self:
        _, ((last,),) = await self._line.run([(_BEGIN, {"start": fresh_start()}), (_LAST, {})])
        self._feed.share(self, last)
        self._listening = self._signals.listen(self._hear), self._signals.on_poll(self._compare)
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._follow)
        return self

    async def __aexit__(self, *_: object) -> None:
        for stop in self._listening:
            stop()
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)
        with anyio.move_on_after(_FLUSH_SECONDS, shield=True):
            try:
                await self._exchange()
            except Unavailable as error:
                logger.warning("%d events were not stored: %s", len(self._batch) + len(self._waiting), error)
            await self._line.aclose()

    def add(self, event: Event) -> None:
        """Store an event soon; the feed receives it with its number."""
        self._added += 1
        member = _ONCE.get(event.kind)
        key = f"{event.kind} {event.data[member]}" if member else f"{self._run} {self._added}"
        self._waiting.append((key, event))
        self._due.set()

    async def catch_up(self) -> None:
        """Store the waiting events, and pass everything that is stored by now to the feed. Raises `Unavailable`."""
        await self._exchange()

    async def read(self, after: int) -> Sequence[Event]:
        """Return the first stored events after this number. Raises `Unavailable`."""
        (rows,) = await self._line.run([(_READ, {"after": after})])
        return [_event(row) for row in rows]

    def _hear(self, topic: str) -> None:
        if topic == TOPIC:
            self._due.set()

    def _compare(self, state: ClusterState) -> None:
        if state.events > self._feed.last:
            self._due.set()

    async def _follow(self) -> None:
        is_logged = False
        while True:
            await self._due.wait()
            self._due = anyio.Event()
            try:
                await self._exchange()
                await self._prune()
                is_logged = False
            except Unavailable as error:
                if not is_logged:
                    logger.warning("Could not exchange events with the other nodes, retrying: %s", error)
                is_logged = True
                await anyio.sleep(_RETRY_SECONDS)
                self._due.set()

    async def _exchange(self) -> None:
        """Store the waiting events and read all new ones, until there are no more."""
        async with self._lock:
            is_more = True
            while is_more:
                while self._waiting and len(self._batch) < _BATCH:
                    key, event = self._waiting.popleft()
                    self._batch.setdefault(key, event)
                *_, rows = await self._line.run([*self._adding(), (_READ, {"after": self._feed.last})])
                if self._batch:
                    self._batch = {}
                    self._signals.send(TOPIC)
                self._adopt(rows)
                is_more = bool(self._waiting) or len(rows) == _BATCH

    def _adding(self) -> "Sequence[Sql]":
        if not self._batch:
            return ()
        events = self._batch.values()
        given: dict[str, Any] = {
            "node": self._node,
            "key": [escape(key) for key in self._batch],
            "at": [event.at for event in events],
            "kind": [event.kind for event in events],
            "data": [dumps(storable(event.data)) for event in events],
        }
        return [(_LOCK, {}), (_ADD, given), (_COUNT, {})]

    def _adopt(self, rows: Sequence[tuple[Any, ...]]) -> None:
        if not rows:
            return
        if rows[0][0] != self._feed.last + 1:  # this node was away for longer than events are kept
            self._feed.share(self, rows[0][0] - 1)
        events = [_event(row) for row in rows]
        self._feed.adopt(events, [event for event, row in zip(events, rows, strict=True) if row[4] != self._node])

    async def _prune(self) -> None:
        if anyio.current_time() >= self._prune_at:
            self._prune_at = anyio.current_time() + _PRUNE_SECONDS
            await self._line.run([(_PRUNE, {})])


def _event(row: Sequence[Any]) -> Event:
    return Event(row[0], row[1], row[2], loads(bytes(row[3])))
