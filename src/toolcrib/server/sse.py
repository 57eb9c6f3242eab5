"""A feed as `text/event-stream`: replay, then live, resumable by number.

A stream ends when the feed closes, when the client leaves, when the credential it was opened with ends, and when the
client has fallen so far behind that what it needs is no longer kept; it then comes back with the last number it saw.
A client that does not read at all is cut off by `http`.

Above: the routes return it. Below: `feed`. It must never hold events of its own: the feed keeps them.
"""

from collections.abc import Awaitable, Callable

import anyio
import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from toolcrib.errors import InvalidRequest, NotFound
from toolcrib.feed import Feed
from toolcrib.model.events import Event

MEDIA_TYPE = "text/event-stream"
PING_SECONDS = 15.0


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


class EventStream(Response):
    """The events after this number (from now on if None); raises `feed.gone` if they are not all kept."""

    def __init__(
        self, feed: Feed, after: int | None, *, ended: anyio.Event | None = None, ping_seconds: float = PING_SECONDS
    ) -> None:
        # From now on means from the request on, and not from when the answer has begun.
        self._after = feed.last if after is None else after
        feed.check(self._after)
        self._feed = feed
        self._ended = ended
        self._ping_seconds = ping_seconds
        super().__init__(media_type=MEDIA_TYPE, headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until something ends the stream."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with anyio.create_task_group() as tasks:

            async def until(done: Callable[[], Awaitable[None]]) -> None:
                await done()
                tasks.cancel_scope.cancel()

            tasks.start_soon(until, lambda: self._follow(send))
            tasks.start_soon(until, lambda: _gone(receive))
            tasks.start_soon(self._ping, send)
            if self._ended is not None:
                tasks.start_soon(until, self._ended.wait)
        await send({"type": "http.response.body", "body": b""})

    async def _follow(self, send: Send) -> None:
        try:
            async for event in self._feed.follow(self._after):
                await send({"type": "http.response.body", "body": encode(event), "more_body": True})
        except NotFound:
            return  # it fell behind; when it comes back it is told so

    async def _ping(self, send: Send) -> None:
        while True:
            await anyio.sleep(self._ping_seconds)
            await send({"type": "http.response.body", "body": b": ping\n\n", "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
