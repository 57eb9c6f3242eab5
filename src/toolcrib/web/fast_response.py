"""A request being answered: its body as it arrives, and a response whose head and body are sent in one write.

The head of a response of unknown length is sent immediately. uvicorn writes head and body separately, checks every
header twice and creates an event per request. On loopback a write runs the client's receive path too, which makes it
the most expensive part of a small response.

Must never send a header that could be parsed as two, or a body that differs from the announced length.
"""

import asyncio
from functools import lru_cache
from typing import Self, cast

from uvicorn._types import (
    ASGI3Application,
    ASGIReceiveEvent,
    ASGISendEvent,
    HTTPResponseBodyEvent,
    HTTPResponseStartEvent,
)
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

WHOLE = "toolcrib.whole"
"""Message type that combines the start and body of a response, halving the calls through the applications.

Allowed only if the scope's `extensions` contain it.
"""
LARGE = 65_536
"""Body size in bytes from which copying costs more than a second write."""
_NO_BODY = frozenset({204, 304})
_NEVER = bytes({*range(0x20), 0x7F} - {*b"\t"})
_USUAL = frozenset({
    b"date", b"content-type", b"content-length", b"cache-control", b"x-content-type-options", b"referrer-policy",
    b"content-security-policy",
})  # fmt: skip
"""Headers of nearly every response, with few distinct and no secret values."""


class FastResponse(RequestResponseCycle):
    """A request that is being answered. Keeps the attribute names of uvicorn's cycle."""

    disconnected = False
    more_body = True
    response_started = False
    response_complete = False
    chunked_encoding: bool | None = None
    expected_content_length = 0
    task: asyncio.Task[None] | None = None
    body: bytes | bytearray = b""
    _head = b""
    _has_news = False
    _news: asyncio.Event | None = None

    def __init__(self, connection: HttpToolsProtocol, *, keep_alive: bool) -> None:  # pyright: ignore[reportMissingSuperCall] most attributes are class attributes
        self.scope = connection.scope
        self.transport = connection.transport
        self.flow = connection.flow
        self.logger = connection.logger
        self.default_headers = connection.server_state.default_headers
        self.on_response = connection.on_response_complete
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = connection.expect_100_continue
        self._tasks = connection.tasks

    async def run_asgi(self, app: ASGI3Application) -> None:
        """Run the application and log its failure.

        The guard handles every expected failure, so an exception here is a bug.
        """
        try:
            await app(self.scope, self.receive, self.send)
            if not self.response_complete and not self.disconnected:
                raise RuntimeError("The application gave no whole answer.")
        except BaseException:  # boundary: after any failure the connection must be closed or answered
            self.logger.exception("An answer broke off.")
            if not self.response_started:
                await self.send_500_response()
            elif not self.response_complete:
                self.transport.close()
        finally:
            self.on_response = _nothing
            self._tasks.discard(self.task)

    @property
    def message_event(self) -> Self:  # pyright: ignore[reportIncompatibleVariableOverride] has `set`, like the event
        """The object to `set` when there is something to receive. An event is created only if a reader waits."""
        return self

    def set(self) -> None:
        """Wake the reader: there is something to receive, or there never will be."""
        self._has_news = True
        if self._news is not None:
            self._news.set()

    async def receive(self) -> ASGIReceiveEvent:
        """Return the next piece of the body, or a disconnect."""
        if self.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waiting_for_100_continue = False
        if not self.disconnected and not self.response_complete:
            self.flow.resume_reading()
            if not self._has_news:
                self._news = self._news or asyncio.Event()
                await self._news.wait()
                self._news.clear()
            self._has_news = False
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self.body = self.body, b""
        return {"type": "http.request", "body": bytes(body), "more_body": self.more_body}

    async def send(self, message: ASGISendEvent) -> None:
        """Handle one message of the response."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if cast("str", message["type"]) == WHOLE and not self.response_started:
            self._start(cast("HTTPResponseStartEvent", message))
            self._send_body(cast("HTTPResponseBodyEvent", message))
        elif message["type"] == "http.response.body" and self.response_started and not self.response_complete:
            self._send_body(message)
        elif message["type"] == "http.response.start" and not self.response_started:
            self._start(message)
        else:
            raise RuntimeError(f"The message {message['type']!r} does not belong here.")

    def _start(self, message: HTTPResponseStartEvent) -> None:
        status, headers = message["status"], [*self.default_headers, *message.get("headers", ())]
        lines = [STATUS_LINE[status]]
        for name, value in headers:
            if name == b"content-length":
                self.expected_content_length, self.chunked_encoding = int(value), False
            elif name == b"connection" and value.lower() == b"close":
                self.keep_alive = False
                continue
            lines.append(_usual(name, value) if name in _USUAL else _line(name, value))
        if self.chunked_encoding is None and self.scope["method"] != "HEAD" and status not in _NO_BODY:
            self.chunked_encoding = True
            lines.append(b"transfer-encoding: chunked\r\n")
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        self.response_started = True
        self.waiting_for_100_continue = False
        self._head = b"".join(lines)
        if self.chunked_encoding:
            self._write(b"")

    def _send_body(self, message: HTTPResponseBodyEvent) -> None:
        body, more = message.get("body", b""), message.get("more_body", False)
        if self.scope["method"] == "HEAD":
            body, self.expected_content_length = b"", 0
        elif self.chunked_encoding:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            body = body if more else body + b"0\r\n\r\n"
        else:
            self.expected_content_length -= len(body)
        if self.expected_content_length < 0 or (self.expected_content_length and not more):
            raise RuntimeError("The body is not as long as its Content-Length says.")
        self._write(body)
        if not more:
            self.response_complete = True
            self.set()
            if not self.keep_alive:
                self.transport.close()
            self.on_response()

    def _write(self, data: bytes) -> None:
        head, self._head = self._head, b""
        if head and len(data) > LARGE:
            self.transport.write(head)
            self.transport.write(data)
        elif head or data:
            self.transport.write(head + data)


def _nothing() -> None:
    """Do nothing; replaces `on_response` after the end."""


def _line(name: bytes, value: bytes) -> bytes:
    """Return a header line. Raises `RuntimeError` for invalid characters."""
    line = b"%b: %b" % (name, value)
    if line.translate(None, _NEVER) != line:
        raise RuntimeError("A header has characters that no header can have.")
    return line + b"\r\n"


_usual = lru_cache(maxsize=256)(_line)
