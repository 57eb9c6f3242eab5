"""Signals between nodes: hints that something in the shared database changed, and the poll that finds what they miss.

A signal is a topic, such as `events` or `session ID`. Topics sent within 50 ms share one notification, so that a node
sends at most 20 per second. Notifications have connections of their own: inside a writing transaction they would
serialise all writers.

A node polls once a second for all its parts: one statement reads what each of them compares with what it knows. A part
reads more only if there is news, so idle nodes cost the database little.

Invariant: a signal is only a hint. It may be lost, so every receiver also follows the poll.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, Self, TypeVar

import anyio
from anyio.abc import TaskGroup

from toolcrib.model.errors import Unavailable
from toolcrib.store.cluster_state import ClusterState, read_cluster_state
from toolcrib.store.engine import Store

if TYPE_CHECKING:
    from toolcrib.store.side_connection import SideConnection

T = TypeVar("T")
logger = logging.getLogger(__name__)

SPACING_SECONDS: Final = 0.05
"""Seconds between two notifications."""
POLL_SECONDS: Final = 1.0
"""Seconds between two polls."""
_RETRY_SECONDS: Final = 1.0
_LONGEST_PAYLOAD: Final = 7_000
"""PostgreSQL accepts less than 8,000 bytes."""
_CHANNEL: Final = "SELECT 'toolcrib_' || md5(current_database() || '.' || current_schema())"

Listener = Callable[[str], None]
StateListener = Callable[[ClusterState], None]


class Signals:
    """Sends and receives signals and polls while open. Does nothing if no other node can exist."""

    def __init__(self, store: Store, node: str) -> None:
        self._store = store
        self._node = hashlib.sha256(node.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self._topics: dict[str, None] = {}
        self._due = anyio.Event()
        self._listeners: dict[object, Listener] = {}
        self._state_listeners: dict[object, StateListener] = {}
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        if self._store.shared:
            sending = self._store.side_connection()
            self._tasks = await anyio.create_task_group().__aenter__()
            self._tasks.start_soon(self._send, sending)
            self._tasks.start_soon(self._receive, sending, self._store.side_connection())
            self._tasks.start_soon(self._poll, sending)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()
            await self._tasks.__aexit__(None, None, None)

    def send(self, topic: str) -> None:
        """Send a topic to the other nodes soon. Idempotent until it is sent."""
        if self._tasks is not None:
            self._topics[topic] = None
            self._due.set()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each topic of another node. Returns a function that removes it."""
        token = object()
        self._listeners[token] = listener
        return lambda: self._listeners.pop(token, None) and None

    def on_poll(self, listener: StateListener) -> Callable[[], None]:
        """Call `listener` with the state of the database every second. Returns a function that removes it.

        The state may be older than what the listener knows. It is passed again until the listener has acted on it.
        """
        token = object()
        self._state_listeners[token] = listener
        return lambda: self._state_listeners.pop(token, None) and None

    async def _send(self, line: "SideConnection") -> None:
        channel = ""
        try:
            while True:
                await self._due.wait()
                self._due = anyio.Event()
                topics, self._topics = self._topics, {}
                try:
                    channel = channel or await _channel(line)
                    for payload in _payloads(self._node, topics):
                        await line.notify(channel, payload)
                except Unavailable as error:  # the receivers poll
                    logger.info("Could not notify the other nodes: %s", error)
                await anyio.sleep(SPACING_SECONDS)
        finally:
            await line.aclose()

    async def _receive(self, line: "SideConnection", listening: "SideConnection") -> None:
        while True:
            try:
                channel = await _channel(line)
                async for payload in listening.listen(channel):
                    self._deliver(payload)
            except Unavailable as error:
                logger.info("Could not listen for other nodes: %s", error)
            await anyio.sleep(_RETRY_SECONDS)

    async def _poll(self, line: "SideConnection") -> None:
        is_logged = False
        while True:
            try:
                state = await read_cluster_state(line)
            except Unavailable as error:
                if not is_logged:
                    logger.warning("Could not look for changes of the other nodes, retrying: %s", error)
                is_logged = True
            else:
                is_logged = False
                _pass(state, self._state_listeners.values())
            await anyio.sleep(POLL_SECONDS)

    def _deliver(self, payload: str | None) -> None:
        if payload is None:
            return
        node, *topics = payload.split("\n")
        if node == self._node:
            return
        for topic in topics:
            _pass(topic, self._listeners.values())


def _pass(news: T, listeners: Iterable[Callable[[T], None]]) -> None:
    for listener in tuple(listeners):
        try:
            listener(news)
        except Exception:  # boundary: one receiver must not keep the others from the news
            logger.exception("Could not handle %r.", news)


async def _channel(line: "SideConnection") -> str:
    """Return the channel of this schema: notifications reach every client of the whole database."""
    ((row,),) = await line.run([(_CHANNEL, {})])
    return str(row[0])


def _payloads(node: str, topics: dict[str, None]) -> Iterator[str]:
    """Yield notifications for all topics, none of them too long."""
    held, size = [node], len(node)
    for topic in topics:
        length = len(topic.encode()) + 1
        if len(held) > 1 and size + length > _LONGEST_PAYLOAD:
            yield "\n".join(held)
            held, size = [node], len(node)
        held.append(topic)
        size += length
    yield "\n".join(held)
