"""Writes one response: plain JSON, or an event stream if messages precede the result.

Most calls finish within milliseconds and cost nothing extra. Only a long call gets a monitor task, which cancels the
call when the client disconnects and keeps the connection alive. One shared timer finds the long calls.
"""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import anyio
from starlette.types import Receive, Send

from toolcrib.model.json import JsonObject, dumps
from toolcrib.web.fast_response import WHOLE
from toolcrib.web.mcp.jsonrpc import RequestId

ATTEND_AFTER = 0.05
"""A call gets its monitor after this many seconds, at most twice as many. Earlier disconnects are noticed then."""
PING_EVERY = 15.0

_JSON = (b"content-type", b"application/json")
_STREAM = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class Lasting:
    """Finds long-running responses: those that are still open at the second timer check."""

    def __init__(self) -> None:
        self._new: set[ResponseWriter] = set()
        self._seen: set[ResponseWriter] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, exchange: "ResponseWriter") -> "asyncio.Task[object] | None":
        """Register a response whose work starts in the current task, and return the task."""
        loop = self._loop
        if loop is None:  # cached: `get_running_loop` makes a system call each time
            loop = self._loop = asyncio.get_running_loop()
        self._new.add(exchange)
        if self._timer is None:
            self._timer = loop.call_later(ATTEND_AFTER, self._look)
        return asyncio.current_task(loop)

    def discard(self, exchange: "ResponseWriter") -> None:
        """Unregister a response."""
        self._new.discard(exchange)
        self._seen.discard(exchange)

    def _look(self) -> None:
        for exchange in self._seen:
            exchange.attend()
        self._seen, self._new = self._new, set()
        self._timer = self._loop.call_later(ATTEND_AFTER, self._look) if self._seen and self._loop else None


class ResponseWriter:
    """Context manager around the work for one request. Call `finish` or `end` exactly once afterwards.

    The work may continue after `finish`: a call that waits for its client's answers has already been answered. Anything
    sent after the end is dropped.
    """

    is_over = False
    _streaming = False
    _withdrawn = False
    _work: asyncio.Task[object] | None = None
    _attendant: asyncio.Task[None] | None = None

    def __init__(
        self,
        receive: Receive,
        send: Send,
        headers: Mapping[bytes, bytes],
        lasting: Lasting,
        *,
        takes_whole: bool = False,
    ) -> None:
        """`takes_whole` allows sending a response as one `WHOLE` message."""
        self._takes_whole = takes_whole
        self._receive = receive
        self._send = send
        self._lasting = lasting
        self.may_stream = b"text/event-stream" in headers.get(b"accept", b"")
        """Whether messages can be sent ahead of the result."""

    def __enter__(self) -> Self:
        self._work = self._lasting.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._lasting.discard(self)
        self._dismiss_attendant()
        work, self._work = self._work, None
        # Cancels the task directly, because a cancel scope would cost every call for the sake of a few.
        return self._withdrawn and kind is asyncio.CancelledError and work is not None and work.uncancel() == 0

    def attend(self) -> None:
        """Start monitoring the client, unless it has been answered."""
        if not self.is_over:
            self._attendant = asyncio.get_running_loop().create_task(self._attend())

    def withdraw(self) -> None:
        """Cancel the work because the client disconnected or cancelled the request. Idempotent."""
        if self._work is not None and not self._withdrawn:
            self._withdrawn = True
            self._work.cancel()

    async def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification ahead of the result. Ignored if the client accepts no stream."""
        if self.may_stream:
            await self._stream(dumps({"jsonrpc": "2.0", "method": method, "params": params}))

    async def request(self, request_id: RequestId, method: str, params: JsonObject) -> None:
        """Send a request to the client ahead of the result. The client answers in a separate request."""
        await self._stream(dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}))

    async def end(self) -> None:
        """End without a result, as for a cancelled request."""
        if self.is_over:
            return
        await self._start_stream()
        self.is_over = True
        await self._send({"type": "http.response.body", "body": b""})

    async def finish(self, body: bytes, status: int = 200) -> None:
        """Send the result and end the response."""
        if self.is_over:
            return
        self.is_over = True
        self._dismiss_attendant()
        if self._streaming:
            await self._send({"type": "http.response.body", "body": _event(body)})
            return
        headers = [_JSON, (b"content-length", b"%d" % len(body))]
        if self._takes_whole:
            await self._send({"type": WHOLE, "status": status, "headers": headers, "body": body})
            return
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    async def _stream(self, data: bytes | None) -> None:
        if self.is_over:
            return
        await self._start_stream()
        frame = b": ping\n\n" if data is None else _event(data)
        await self._send({"type": "http.response.body", "body": frame, "more_body": True})

    async def _start_stream(self) -> None:
        if not self._streaming:
            self._streaming = True
            await self._send({"type": "http.response.start", "status": 200, "headers": _STREAM})

    def _dismiss_attendant(self) -> None:
        if self._attendant is not None:
            self._attendant.cancel()

    async def _attend(self) -> None:
        while True:
            with anyio.move_on_after(PING_EVERY):
                while (await self._receive())["type"] != "http.disconnect":
                    pass
                self.withdraw()
                return
            if self.may_stream:
                await self._stream(None)


def _event(data: bytes) -> bytes:
    return b"event: message\ndata: " + data + b"\n\n"
