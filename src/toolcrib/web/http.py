"""HTTP/1.1 protocol: uvicorn's httptools implementation with added timeouts and size limits.

The head and the body of a request must arrive in time, and the target, headers and head are limited in size. A request
that exceeds a limit gets a problem response, and the connection is closed. Trailers are dropped, so that nothing can be
added to a request after the guard has checked it. Pipelined requests are answered in order, and each one is notified
when the client disconnects.

One periodic timer per connection checks the deadlines, which is cheaper than a timer per request.

`FastResponse` sends the head and the body of a response in one write. uvicorn writes them separately, checks every
header twice and creates an event per request. On loopback a write runs the client's receive path too, which makes it
the most expensive part of a small response. The head of a response of unknown length is sent immediately.

Must never make an authorization decision, send a header that could be parsed as two, or send a body that differs from
the announced length.
"""

import asyncio
from functools import lru_cache
from typing import Any, Literal, NoReturn, Self, TypeAlias, cast
from urllib.parse import unquote

import httptools
from uvicorn._types import (
    ASGI3Application,
    ASGIReceiveEvent,
    ASGISendEvent,
    HTTPResponseBodyEvent,
    HTTPResponseStartEvent,
)
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from toolcrib.model.errors import CODES
from toolcrib.web.connections import Connections
from toolcrib.web.limits import CONNECTION, WHOLE, WireLimits
from toolcrib.web.problems import on_the_wire

LINGER = 1.0
"""Seconds to drain a refused client's input: closing immediately could reset the connection before it reads."""

LARGE = 65_536
"""Body size in bytes from which copying costs more than a second write."""
_NO_BODY = frozenset({204, 304})
_NEVER = bytes({*range(0x20), 0x7F} - {*b"\t"})
_USUAL = frozenset({
    b"date", b"content-type", b"content-length", b"cache-control", b"x-content-type-options", b"referrer-policy",
    b"content-security-policy",
})  # fmt: skip
"""Headers of nearly every response, with few distinct and no secret values."""

Phase = Literal["head", "body", "idle"]
_EMPTY_LINE = frozenset(b"\r\n")
_EXTENSIONS: Any = {WHOLE: {}}
_ASGI: Any = {"version": "3.0", "spec_version": "2.3"}
Data: TypeAlias = bytes | memoryview


class _Refusal(Exception):
    """Aborts the parser from inside a callback."""


class BoundedHttp(HttpToolsProtocol):
    """One connection, bounded by `limits`."""

    app: Any
    limits = WireLimits()
    table = Connections(limits.connections)
    url = b""

    _key: str | None = None

    _phase: Phase = "head"
    _since = 0.0
    _head_bytes = 0
    _to_be_measured = False
    _trailer_bytes = 0
    _bare_body = 0
    _drained = 0
    _stuck_since: float | None = None
    _refusal: tuple[str, str] | None = None
    _refused = False
    _running: RequestResponseCycle | None = None
    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] as in uvicorn
        """Start the timer, or refuse if all connections are in use and none can be shed."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self.table.add(self)
        if len(self.table) > self.table.capacity and not self.table.shed_one(keep=self):
            self._refuse("crib.busy", "Too many connections are open.")
        else:
            self._clock = self.loop.call_later(self.limits.head_seconds, self._look_at_clock)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer and notify every request of the disconnect."""
        self.table.remove(self)
        if self._clock is not None:
            self._clock.cancel()
        self.pipeline.clear()
        if self._running is not None:
            _notify_disconnect(self._running)
        super().connection_lost(exc)

    @property
    def is_busy(self) -> bool:
        """Whether a request is in progress."""
        return self._running is not None and not self._running.response_complete

    def claim(self, key: str) -> bool:
        """Assign this connection to a principal. Return False if it has too many connections."""
        if self._key == key:
            return True
        is_accepted = self.table.claim(self, key)
        self._key = key if is_accepted else None
        return is_accepted

    def shed(self) -> None:
        """Close immediately and drop unread output."""
        self._refused = True
        if self.transport.get_write_buffer_size() or self.is_busy:
            self.transport.abort()
        else:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Parse incoming bytes; refuse malformed ones."""
        if self._refused:
            return
        if data[0] in _EMPTY_LINE and self._is_idle:
            self._begin()  # a leading empty line starts the head's timeout
        rest: Data | None = data
        try:
            while rest is not None:
                rest = self._feed(rest)
        except httptools.HttpParserError:
            self._refuse(*(self._refusal or ("request.malformed", "Not an HTTP/1.1 request.")))

    def _feed(self, data: Data) -> Data | None:
        """Parse some bytes. Return the rest after an upgrade offer, where the parser stops."""
        if self._bare_body:
            data = self._take_bare_body(data)
        # Most heads arrive in one small piece and need no measuring.
        self._to_be_measured = self._head_bytes + len(data) > self.limits.head_bytes
        try:
            if self.parser is not None:
                self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            # An upgrade offer (h2c, websocket) is ignored: the request is answered normally, and the bytes after it are
            # its body or the next request.
            return memoryview(data)[offer.args[0] :]
        if self._phase == "head":
            self._head_bytes += len(data)
            if self._head_bytes > self.limits.head_bytes:
                self._refuse(*_too_large(self.limits))
        return None

    def on_message_begin(self) -> None:
        """Reset the per-request state. Replaces the base implementation for speed."""
        self._begin()
        self._drained = self._trailer_bytes = 0
        self.url = b""
        self.expect_100_continue = False
        self.headers = []

    def on_url(self, url: bytes) -> None:
        """Append to the target."""
        self.url += url
        if len(self.url) > self.limits.target_bytes:
            self._stop("request.target_too_long", f"The target is longer than {self.limits.target_bytes} bytes.")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. A header after the head is a trailer and is dropped."""
        if self._phase != "head":
            self._trailer_bytes += len(name) + len(value)
            if self._trailer_bytes > self.limits.head_bytes:
                self._stop(*_too_large(self.limits))
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Start the request. Only targets in origin form (`/path`) are accepted."""
        self._phase = "body"
        headers, limits = self.headers, self.limits
        if len(headers) > limits.header_count or (self._to_be_measured and _size(headers) > limits.head_bytes):
            self._stop(*_too_large(limits))
        if not self.url.startswith(b"/"):
            self._stop("request.malformed", "The request target must start with a slash.")
        parser = self.parser
        assert parser is not None
        if parser.should_upgrade():
            self._expect_bare_body()
        raw_path, path, query = _target(self.url)
        version = parser.get_http_version()
        self.scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "method": parser.get_method().decode("ascii"),
            "scheme": self.scheme or "http",
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": headers,
            "client": self.client,
            "server": self.server,
            "state": {CONNECTION: self},
            "extensions": _EXTENSIONS,
        }
        self._take(version != "1.0" and parser.should_keep_alive())

    def on_body(self, body: bytes) -> None:
        """Append to the body. After the response, the body is discarded up to a limit."""
        cycle = self.cycle
        if cycle.response_complete:
            self._drained += len(body)
            if self._drained > self.limits.drained_bytes:
                self.transport.abort()
            return
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        """Mark the request as complete, unless a body after an upgrade offer is still expected."""
        if self._bare_body:
            return
        self._phase = "idle"
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.more_body = False
            cycle.message_event.set()

    def on_response_complete(self) -> None:
        """Continue with the next pipelined request, or become idle."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._phase == "idle":
            self._since = self.loop.time()

    def pause_writing(self) -> None:
        """Record when the client stopped reading."""
        self._stuck_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Record that the client reads again."""
        self._stuck_since = None
        super().resume_writing()

    @property
    def _is_idle(self) -> bool:
        """Whether no request is being received or answered."""
        return self._phase == "idle" and not self.is_busy

    def _begin(self) -> None:
        self._phase = "head"
        self._since = self.loop.time()
        self._head_bytes = 0

    def _expect_bare_body(self) -> None:
        """Read the body of an upgrade request here, because the parser does not. Its length must be known."""
        for name, value in self.headers:
            if name == b"transfer-encoding":
                self._stop("request.malformed", "A request with an Upgrade header needs a Content-Length.")
            if name == b"content-length":
                self._bare_body = int(value)

    def _take_bare_body(self, data: Data) -> Data:
        piece, rest = data[: self._bare_body], data[self._bare_body :]
        self._bare_body -= len(piece)
        self.on_body(bytes(piece))
        if not self._bare_body:
            self.on_message_complete()
        return rest

    def _take(self, keep_alive: bool) -> None:
        """Start the request, or queue it behind earlier ones."""
        cycle = self.cycle = FastResponse(self, keep_alive=keep_alive)
        if self._running is None or self._running.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        task = self.loop.create_task(cycle.run_asgi(app))
        if isinstance(cycle, FastResponse):
            cycle.task = task
        self.tasks.add(task)

    def _unsupported_upgrade_warning(self) -> None:
        """Suppress uvicorn's warning: upgrades are never accepted."""

    def _look_at_clock(self) -> None:
        now = self.loop.time()
        limits = self.limits
        if self._stuck_since is not None and self._stuck_since + limits.stuck_seconds <= now:
            self.transport.abort()
            return
        if self.flow.read_paused:
            self._since = now  # reading is paused by us, so the client is not late
        limit = limits.head_seconds if self._phase == "head" else limits.request_seconds
        if self._phase != "idle" and self._since + limit <= now:
            self._refuse("request.too_slow", f"The request was not complete after {limit:g} s.")
            return
        idle_seconds = limits.idle_seconds if self._key is not None else limits.head_seconds
        if self._is_idle and self._since + idle_seconds <= now:
            self.transport.close()
            return
        # The next check is due within the shortest limit, so anything that starts after this one gets its full time.
        soonest = now + min(limits.head_seconds, limits.stuck_seconds)
        due = soonest if self._phase == "idle" else min(soonest, self._since + limit)
        self._clock = self.loop.call_at(due, self._look_at_clock)

    def _stop(self, code: str, message: str) -> NoReturn:
        self._refusal = (code, message)
        raise _Refusal

    def _refuse(self, code: str, message: str) -> None:
        """Answer an invalid request and close the connection. A response in progress is aborted instead."""
        self._refused = True
        if self._clock is not None:
            self._clock.cancel()
        if self._running is not None and self.is_busy:
            under_way = self._running.response_started
            _notify_disconnect(self._running)
            if under_way:
                self.transport.abort()
                return
        silent = self._phase == "head" and not self._head_bytes
        if not (silent and code == "request.too_slow"):  # a client that sent nothing gets no answer
            self.transport.write(on_the_wire(CODES[code].raised_as(code, message)))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER, self.transport.close)


def bounded_http(limits: WireLimits, table: Connections) -> type[BoundedHttp]:
    """Return the protocol class with these limits and table; uvicorn instantiates it per connection."""
    return type("BoundedHttp", (BoundedHttp,), {"limits": limits, "table": table})


@lru_cache(maxsize=64)
def _target(url: bytes) -> tuple[bytes, str, bytes]:
    """Return the raw path, decoded path and query of a target. Cached, because few targets repeat often."""
    target = httptools.parse_url(url)
    path = target.path.decode("ascii")
    return target.path, unquote(path) if "%" in path else path, target.query or b""


def _notify_disconnect(cycle: RequestResponseCycle) -> None:
    if not cycle.response_complete:
        cycle.disconnected = True
    cycle.message_event.set()


def _size(headers: list[tuple[bytes, bytes]]) -> int:
    return sum(len(name) + len(value) for name, value in headers)


def _too_large(limits: WireLimits) -> tuple[str, str]:
    return (
        "request.headers_too_large",
        f"At most {limits.header_count} headers and {limits.head_bytes} bytes are read.",
    )


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
                raise RuntimeError("The application did not complete the response.")
        except BaseException:  # boundary: after any failure the connection must be closed or answered
            self.logger.exception("A response was not completed.")
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
            raise RuntimeError(f"The message {message['type']!r} is not expected here.")

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
            raise RuntimeError("The body does not match its Content-Length.")
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
        raise RuntimeError("A header contains invalid characters.")
    return line + b"\r\n"


_usual = lru_cache(maxsize=256)(_line)
