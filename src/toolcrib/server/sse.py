"""A feed, or the record of a session, as `text/event-stream`: replay, then live, resumable by number.

A stream ends when the feed closes or the session is deleted, when the client leaves, when the credential it was opened
with ends, and when the client has fallen so far behind a feed that what it needs is no longer kept; it then comes back
with the last number it saw. A client that does not read at all is cut off by `http`.

Above: the routes return it. Below: `feed`, `sessions.log`. It must never hold events of its own: they keep them.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing

import anyio
import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from toolcrib.errors import InvalidRequest, NotFound
from toolcrib.feed import Feed
from toolcrib.model.events import Event
from toolcrib.model.sessions import SessionEvent
from toolcrib.sessions import SessionLog

MEDIA_TYPE = "text/event-stream"
PING_SECONDS = 15.0
PIECE = 65_536
"""Bytes after which events that are sent at once become another piece, so that a slow reader holds no more."""
FEW = 10
REST = 0.002
LONGEST_REST = 0.2
"""Where more than a few read a session, each rests for so many seconds a reader between two pieces: what comes in the
meantime goes into one, and what all of them cost together stays the same."""


def resume_point(request: Request, after: int | None) -> int | None:
    """The number to go on after: what the browser says on its own when it reconnects, else what the address says."""
    header = request.headers.get("last-event-id")
    if not header:
        return after
    if not (header.isascii() and header.isdigit() and len(header) <= 18):
        raise InvalidRequest("request.malformed", "Last-Event-ID is not a number.", "Send the last `id` that was read.")
    return int(header)


def encode(event: Event) -> bytes:
    """One event on the wire. JSON has no line breaks of its own, so one `data` line is enough."""
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (event.seq, event.kind.encode(), orjson.dumps(event.to_json()))


class FrameStream(Response):
    """Frames of a stream, for as long as there are any; `ended` ends it sooner."""

    def __init__(
        self, frames: AsyncGenerator[bytes], *, ended: anyio.Event | None = None, ping_seconds: float = PING_SECONDS
    ) -> None:
        self._frames = frames
        self._ended = ended
        self._ping_seconds = ping_seconds
        super().__init__(media_type=MEDIA_TYPE, headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send frames until something ends the stream."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with anyio.create_task_group() as tasks:

            async def until(done: Callable[[], Awaitable[object]]) -> None:
                await done()
                tasks.cancel_scope.cancel()

            tasks.start_soon(until, lambda: self._send(send))
            tasks.start_soon(until, lambda: _gone(receive))
            tasks.start_soon(self._ping, send)
            if self._ended is not None:
                tasks.start_soon(until, self._ended.wait)
        await send({"type": "http.response.body", "body": b""})

    async def _send(self, send: Send) -> None:
        async with aclosing(self._frames) as frames:
            async for frame in frames:
                await send({"type": "http.response.body", "body": frame, "more_body": True})

    async def _ping(self, send: Send) -> None:
        while True:
            await anyio.sleep(self._ping_seconds)
            await send({"type": "http.response.body", "body": b": ping\n\n", "more_body": True})


class EventStream(FrameStream):
    """The events of a feed after this number (from now on if None); raises `feed.gone` if they are not all kept."""

    def __init__(
        self, feed: Feed, after: int | None, *, ended: anyio.Event | None = None, ping_seconds: float = PING_SECONDS
    ) -> None:
        # From now on means from the request on, and not from when the answer has begun.
        after = feed.last if after is None else after
        feed.check(after)
        super().__init__(_encoded(feed, after), ended=ended, ping_seconds=ping_seconds)


class SessionStream(FrameStream):
    """The events of a session after this number (from now on if None); raises `feed.gone` for one never given."""

    def __init__(
        self,
        log: SessionLog,
        after: int | None,
        *,
        ended: anyio.Event | None = None,
        ping_seconds: float = PING_SECONDS,
    ) -> None:
        after = log.last if after is None else after
        log.check(after)
        super().__init__(_pieces(log, after), ended=ended, ping_seconds=ping_seconds)


async def _encoded(feed: Feed, after: int) -> AsyncGenerator[bytes]:
    try:
        async for event in feed.follow(after):
            yield encode(event)
    except NotFound:
        return  # it fell behind; when it comes back it is told so


async def _pieces(log: SessionLog, after: int) -> AsyncGenerator[bytes]:
    async with aclosing(log.follow(after)) as batches:
        async for batch in batches:
            for piece in _joined(batch):
                yield piece
            if log.readers > FEW:
                await anyio.sleep(min(log.readers * REST, LONGEST_REST))


def _joined(batch: Iterable[SessionEvent]) -> Iterator[bytes]:
    held: list[bytes] = []
    size = 0
    for event in batch:
        held.append(event.frame)
        size += len(event.frame)
        if size >= PIECE:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
