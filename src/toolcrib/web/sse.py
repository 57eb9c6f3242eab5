"""Streams a feed or a session log as `text/event-stream`: replay, then live, resumable by sequence number.

A stream ends when the feed closes or the session is deleted, when the client disconnects, when its credential ends, or
when the client falls behind what the feed retains. The client then resumes from the last number it saw. `http`
disconnects a client that does not read at all.

Must never buffer events of its own: the feed and the session log keep them.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from toolcrib.agents.sessions.event_log import SessionLog
from toolcrib.base.feed import Feed
from toolcrib.model.errors import InvalidRequest, NotFound
from toolcrib.model.events import Event
from toolcrib.model.json import dumps
from toolcrib.model.sessions import SessionEvent

MEDIA_TYPE = "text/event-stream"
PING_SECONDS = 15.0
PIECE = 65_536
"""Bytes after which a batch of events is split, which bounds the memory of a slow reader."""
FEW = 10
REST = 0.002
LONGEST_REST = 0.2
"""With more than `FEW` readers of a session, each pauses `REST` seconds per reader between batches.

The events of a pause are sent as one piece, so that the total cost stays constant.
"""


def resume_point(request: Request, after: int | None) -> int | None:
    """Return the number to resume after: the `Last-Event-ID` header of a reconnect, or else the query parameter."""
    header = request.headers.get("last-event-id")
    if not header:
        return after
    if not (header.isascii() and header.isdigit() and len(header) <= 18):
        raise InvalidRequest(
            "request.malformed", "Last-Event-ID is not a number.", "Send the `id` of the last event you received."
        )
    return int(header)


def encode(event: Event) -> bytes:
    """Return the wire format of an event. JSON contains no raw line breaks, so one `data` line is enough."""
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (event.seq, event.kind.encode(), dumps(event.to_json()))


class FrameStream(Response):
    """A response that streams frames until they are exhausted or `ended` is set."""

    def __init__(
        self, frames: AsyncGenerator[bytes], *, ended: anyio.Event | None = None, ping_seconds: float = PING_SECONDS
    ) -> None:
        self._frames = frames
        self._ended = ended
        self._ping_seconds = ping_seconds
        super().__init__(media_type=MEDIA_TYPE, headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send frames until the stream ends."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with anyio.create_task_group() as tasks:

            async def until(done: Callable[[], Awaitable[object]]) -> None:
                await done()
                tasks.cancel_scope.cancel()

            tasks.start_soon(until, lambda: self._send(send))
            tasks.start_soon(until, lambda: _wait_for_disconnect(receive))
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
    """Streams a feed after this number (from now on if None). Raises `feed.gone` if events were dropped since."""

    def __init__(
        self, feed: Feed, after: int | None, *, ended: anyio.Event | None = None, ping_seconds: float = PING_SECONDS
    ) -> None:
        # "From now on" starts at the request, not at the first byte of the response.
        after = feed.last if after is None else after
        feed.check(after)
        super().__init__(_encode_feed(feed, after), ended=ended, ping_seconds=ping_seconds)


class SessionStream(FrameStream):
    """Streams a session after this number (from now on if None). Raises `feed.gone` for an unknown number."""

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


async def _encode_feed(feed: Feed, after: int) -> AsyncGenerator[bytes]:
    try:
        async for event in feed.follow(after):
            yield encode(event)
    except NotFound:
        return  # the client fell behind; its next request raises `feed.gone`


async def _pieces(log: SessionLog, after: int) -> AsyncGenerator[bytes]:
    async with aclosing(log.follow(after)) as batches:
        async for batch in batches:
            for piece in _join(batch):
                yield piece
            if log.readers > FEW:
                await anyio.sleep(min(log.readers * REST, LONGEST_REST))


def _join(batch: Iterable[SessionEvent]) -> Iterator[bytes]:
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


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
