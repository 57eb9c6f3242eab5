"""One answer in the making: plain JSON if nothing comes before it, else a stream of events that ends with it.

Most calls are done within milliseconds and cost nothing here. Only one that lasts gets an attendant, which notices
when the client has gone (and cancels the call) and keeps the connection alive. One timer looks for those that last.
"""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import anyio
import orjson
from starlette.types import Receive, Send

from toolcrib.model.json import JsonObject
from toolcrib.server.answer import WHOLE
from toolcrib.server.mcp.rpc import RequestId

ATTEND_AFTER = 0.05
"""Seconds after which, and before twice of which, a call gets its attendant; who leaves earlier is noticed then."""
PING_EVERY = 15.0

_JSON = (b"content-type", b"application/json")
_STREAM = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


class Lasting:
    """Finds the exchanges that last: those that were there when it last looked, and still are."""

    def __init__(self) -> None:
        self._new: set[Exchange] = set()
        self._seen: set[Exchange] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, exchange: "Exchange") -> "asyncio.Task[object] | None":
        """Work begins, in this task, which is given back."""
        loop = self._loop
        if loop is None:  # asked for once: each time it asks the system which process this is
            loop = self._loop = asyncio.get_running_loop()
        self._new.add(exchange)
        if self._timer is None:
            self._timer = loop.call_later(ATTEND_AFTER, self._look)
        return asyncio.current_task(loop)

    def discard(self, exchange: "Exchange") -> None:
        """Work has ended."""
        self._new.discard(exchange)
        self._seen.discard(exchange)

    def _look(self) -> None:
        for exchange in self._seen:
            exchange.attend()
        self._seen, self._new = self._new, set()
        self._timer = self._loop.call_later(ATTEND_AFTER, self._look) if self._seen and self._loop else None


class Exchange:
    """`with` around the work for one request; then `finish` or `end`, exactly once.

    The work may go on after `finish`: a call that waits for its client's answers is answered that it does. What is sent
    once the exchange is over is dropped.
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
        """`takes_whole` says that an answer may be sent in one message."""
        self._takes_whole = takes_whole
        self._receive = receive
        self._send = send
        self._lasting = lasting
        self.may_stream = b"text/event-stream" in headers.get(b"accept", b"")
        """Whether anything can be sent ahead of the answer."""

    def __enter__(self) -> Self:
        self._work = self._lasting.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._lasting.discard(self)
        self._dismiss_attendant()
        work, self._work = self._work, None
        # A plain cancellation of the task, since a scope of its own would cost every call what few of them need.
        return self._withdrawn and kind is asyncio.CancelledError and work is not None and work.uncancel() == 0

    def attend(self) -> None:
        """The work lasts: watch over its client, unless that has been answered."""
        if not self.is_over:
            self._attendant = asyncio.get_running_loop().create_task(self._attend())

    def withdraw(self) -> None:
        """The client went away or took its request back: end the work, if it still goes on."""
        if self._work is not None and not self._withdrawn:
            self._withdrawn = True
            self._work.cancel()

    async def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification ahead of the answer; a client that takes no stream gets none."""
        if self.may_stream:
            await self._stream(orjson.dumps({"jsonrpc": "2.0", "method": method, "params": params}))

    async def request(self, request_id: RequestId, method: str, params: JsonObject) -> None:
        """Ask the client something, ahead of the answer to it; its own answer comes in another request."""
        await self._stream(orjson.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}))

    async def end(self) -> None:
        """End without an answer: a client that took its request back is not sent one."""
        if self.is_over:
            return
        await self._start_stream()
        self.is_over = True
        await self._send({"type": "http.response.body", "body": b""})

    async def finish(self, body: bytes, status: int = 200) -> None:
        """Send the answer and end the exchange."""
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
