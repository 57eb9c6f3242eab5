"""Resumable event streams of the legacy era.

Every event of a call's stream has an id. A client whose connection breaks reconnects with `Last-Event-ID`: it receives
the events it missed and then those that follow. The call continues meanwhile, and is cancelled if its client stays away
for `RESUME_WITHIN` seconds. A stream that ended can be resumed for as long.

Must never replay a stream in another MCP session, or keep the events of a stream without a limit.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager

import anyio
from starlette.types import Receive, Send

from toolcrib.model.errors import NotFound

RESUME_WITHIN = 60.0
"""Seconds for which a broken or ended stream can be resumed."""
RETRY_MS = 1_000
"""Milliseconds that a client should wait before it reconnects."""
EVENTS_KEPT = 1_000
BYTES_KEPT = 4 * 1024 * 1024
"""Size of the events kept for one stream. The newest event is always kept."""
STREAMS_KEPT = 100
"""Streams kept for one MCP session. The oldest ended one is dropped first."""
PING_EVERY = 15.0
PING = b": ping\n\n"
HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]

_PREFIX = "call-"


class EventLog:
    """The newest events of one stream. `cancel` ends its call when the client does not come back."""

    def __init__(self, cancel: Callable[[], None], on_expiry: Callable[["EventLog"], None]) -> None:
        self.id = secrets.token_hex(8)
        self.is_closed = False
        self._is_dropped = False
        self._cancel = cancel
        self._on_expiry = on_expiry
        self._frames: deque[bytes] = deque()
        self._size = 0
        self._count = 0
        self._changed = asyncio.Event()
        self._reader: object | None = None
        self._clock: asyncio.TimerHandle | None = None

    @property
    def has_events(self) -> bool:
        """Whether an event was added, whose id the client can resume from."""
        return self._count > 0

    def prime(self) -> bytes:
        """Add the first event, which has an id, no data and the time to wait before a reconnection."""
        return self._add(b"retry: %d\ndata: \n\n" % RETRY_MS)

    def add(self, data: bytes) -> bytes:
        """Add an event and return its frame."""
        return self._add(b"event: message\ndata: " + data + b"\n\n")

    def close(self) -> None:
        """End the stream. It expires if no client reads it within the time limit. Idempotent."""
        if not self.is_closed:
            self.is_closed = True
            self._changed.set()
            self.detach()

    def detach(self) -> None:
        """Start the time limit, because no client is connected or the stream has ended."""
        self._stop_clock()
        if self._is_dropped:
            self._expire()
            return
        self._clock = asyncio.get_running_loop().call_later(RESUME_WITHIN, self._expire)

    def drop(self) -> None:
        """Discard the stream: its call is cancelled as soon as no client is connected to it."""
        self._is_dropped = True
        if self._clock is not None:
            self._stop_clock()
            self._expire()

    def has(self, number: int) -> bool:
        """Return whether every event after this number is kept."""
        return self._count - len(self._frames) <= number <= self._count

    async def follow(self, after: int, receive: Receive, send: Send) -> None:
        """Send the events after a number, and those that follow, until the stream ends or the client disconnects.

        A later reader of the same stream replaces this one.
        """
        with self._reading() as reader:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_until_disconnected, receive, tasks.cancel_scope)
                await self._send_from(after, reader, send)
                tasks.cancel_scope.cancel()

    async def _send_from(self, after: int, reader: object, send: Send) -> None:
        while self._reader is reader:
            self._changed.clear()
            frames = list(self._frames)[len(self._frames) - (self._count - after) :] if after < self._count else []
            after, is_over = self._count, self.is_closed
            if frames:
                await send({"type": "http.response.body", "body": b"".join(frames), "more_body": True})
            if is_over:
                break
            with anyio.move_on_after(PING_EVERY):
                await self._changed.wait()
                continue
            await send({"type": "http.response.body", "body": PING, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    @contextmanager
    def _reading(self) -> Generator[object]:
        reader = self._reader = object()
        self._changed.set()  # an earlier reader ends
        if not self.is_closed:
            self._stop_clock()
        try:
            yield reader
        finally:
            if self._reader is reader:
                self._reader = None
                self.detach()

    def _add(self, fields: bytes) -> bytes:
        self._count += 1
        frame = b"id: %b%b-%d\n%b" % (_PREFIX.encode(), self.id.encode(), self._count, fields)
        self._frames.append(frame)
        self._size += len(frame)
        while len(self._frames) > 1 and (self._size > BYTES_KEPT or len(self._frames) > EVENTS_KEPT):
            self._size -= len(self._frames.popleft())
        self._changed.set()
        return frame

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _expire(self) -> None:
        self._on_expiry(self)
        if not self.is_closed:
            self._cancel()


async def _until_disconnected(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


class ResumableStreams:
    """The streams that can be resumed, by MCP session."""

    def __init__(self) -> None:
        self._by_session: dict[str, dict[str, EventLog]] = {}

    def open(self, session_id: str, cancel: Callable[[], None]) -> EventLog:
        """Begin the stream of a call."""
        logs = self._by_session.setdefault(session_id, {})
        log = EventLog(cancel, lambda log: self._forget(session_id, log))
        logs[log.id] = log
        if len(logs) > STREAMS_KEPT and (ended := next((one for one in logs.values() if one.is_closed), None)):
            self._forget(session_id, ended)
            ended.drop()
        return log

    def find(self, session_id: str, event_id: str) -> tuple[EventLog, int] | None:
        """Return the stream of an event and the event's number, or None if it is not the event of a call's stream.

        Raises `NotFound` (`feed.gone`) for a stream that can no longer be resumed.
        """
        if not event_id.startswith(_PREFIX):
            return None
        stream_id, _, number = event_id.removeprefix(_PREFIX).partition("-")
        log = self._by_session.get(session_id, {}).get(stream_id)
        if log is None or not number.isdecimal() or len(number) > len(str(1 << 63)) or not log.has(int(number)):
            raise NotFound("feed.gone", "This stream can no longer be resumed. Send the request again.")
        return log, int(number)

    def end_session(self, session_id: str) -> None:
        """Drop the streams of an ended session, and cancel its calls without a connected client."""
        for log in self._by_session.pop(session_id, {}).values():
            log.drop()

    def _forget(self, session_id: str, log: EventLog) -> None:
        logs = self._by_session.get(session_id, {})
        logs.pop(log.id, None)
        if not logs:
            self._by_session.pop(session_id, None)
