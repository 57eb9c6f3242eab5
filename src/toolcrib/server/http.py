"""HTTP/1.1 on the wire: uvicorn's fast protocol, with clocks and sizes it does not have.

A request has to be there in time (head, then body), and its target, headers and head as a whole stay below a size;
what does not is answered with a problem, and the connection ends. Trailers are dropped, so that nothing can be added
to a request after the guard has judged it. A client that pipelines is answered in order, and every request of it learns
when it has gone.

The clock costs a request two numbers: one timer per connection looks at them now and then, nobody sets and cancels one
per request. Above: uvicorn's server drives it. Below: `answer`, `limits`, `problems`. It must never decide who may do
what.
"""

import asyncio
from functools import lru_cache
from typing import Any, Literal, NoReturn, TypeAlias
from urllib.parse import unquote

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from toolcrib.errors import CODES
from toolcrib.server.answer import WHOLE, Answer
from toolcrib.server.limits import Limits
from toolcrib.server.problems import on_the_wire

LINGER = 1.0
"""Seconds for which a refused client's bytes are read and dropped: closing at once could cost it the answer."""

Phase = Literal["head", "body", "idle"]
_EMPTY_LINE = frozenset(b"\r\n")
_EXTENSIONS: Any = {WHOLE: {}}
_ASGI: Any = {"version": "3.0", "spec_version": "2.3"}
Data: TypeAlias = bytes | memoryview


class _Refusal(Exception):
    """Stops the parser from inside one of its callbacks."""


class BoundedHttp(HttpToolsProtocol):
    """One connection, bounded by `limits`."""

    app: Any
    limits = Limits()
    url = b""

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
        """Start the clock, unless there are too many connections."""
        super().connection_made(transport)
        self._since = self.loop.time()
        if len(self.connections) > self.limits.connections:
            self._refuse("crib.busy", "Too many connections are open.")
        else:
            self._clock = self.loop.call_later(self.limits.head_seconds, self._look_at_clock)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock and tell every request that its client has gone."""
        if self._clock is not None:
            self._clock.cancel()
        self.pipeline.clear()
        if self._running is not None:
            _tell_gone(self._running)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came; refuse what cannot become a request."""
        if self._refused:
            return
        if data[0] in _EMPTY_LINE and self._is_idle:
            self._begin()  # what follows has to come in time, as if it had begun
        rest: Data | None = data
        try:
            while rest is not None:
                rest = self._feed(rest)
        except httptools.HttpParserError:
            self._refuse(*(self._refusal or ("request.malformed", "This is not an HTTP/1.1 request.")))

    def _feed(self, data: Data) -> Data | None:
        """Parse some bytes; gives back what stands after an offer to upgrade, where the parser stops."""
        if self._bare_body:
            data = self._take_bare_body(data)
        # Most heads come in one small piece, which needs no measuring.
        self._to_be_measured = self._head_bytes + len(data) > self.limits.head_bytes
        try:
            if self.parser is not None:
                self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            # An offer (h2c, websocket) that is not taken: the request is answered as it is, and what follows it is
            # its body, or the next request, and not the other protocol.
            return memoryview(data)[offer.args[0] :]
        if self._phase == "head":
            self._head_bytes += len(data)
            if self._head_bytes > self.limits.head_bytes:
                self._refuse(*_too_large(self.limits))
        return None

    def on_message_begin(self) -> None:
        """A request begins: forget the one before. Like all that is done per request, the base's part is done here."""
        self._begin()
        self._drained = self._trailer_bytes = 0
        self.url = b""
        self.expect_100_continue = False
        self.headers = []

    def on_url(self, url: bytes) -> None:
        """Take a piece of the target."""
        self.url += url
        if len(self.url) > self.limits.target_bytes:
            self._stop("request.target_too_long", f"The target is longer than {self.limits.target_bytes} bytes.")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; one that comes after the head is a trailer and is dropped."""
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
        """Hand the request on; only the form `/path` is one that a server like this is asked."""
        self._phase = "body"
        headers, limits = self.headers, self.limits
        if len(headers) > limits.header_count or (self._to_be_measured and _size(headers) > limits.head_bytes):
            self._stop(*_too_large(limits))
        if not self.url.startswith(b"/"):
            self._stop("request.malformed", "The target has to begin with a slash.")
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
            "state": {},
            "extensions": _EXTENSIONS,
        }
        self._take(version != "1.0" and parser.should_keep_alive())

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body; after the answer it is dropped, up to a limit."""
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
        """The request is there, but for a body that the parser takes for another protocol."""
        if self._bare_body:
            return
        self._phase = "idle"
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.more_body = False
            cycle.message_event.set()

    def on_response_complete(self) -> None:
        """The answer is whole: go on with the next request, which may be here already."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._phase == "idle":
            self._since = self.loop.time()

    def pause_writing(self) -> None:
        """The client does not read: note since when."""
        self._stuck_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._stuck_since = None
        super().resume_writing()

    @property
    def _is_idle(self) -> bool:
        """Whether nothing of a request is there, and nothing of an answer missing."""
        return self._phase == "idle" and (self._running is None or self._running.response_complete)

    def _begin(self) -> None:
        self._phase = "head"
        self._since = self.loop.time()
        self._head_bytes = 0

    def _expect_bare_body(self) -> None:
        """After an offer to upgrade the parser reads no body; we do, where its length is known."""
        for name, value in self.headers:
            if name == b"transfer-encoding":
                self._stop("request.malformed", "A request that offers an upgrade needs a Content-Length.")
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
        """The head of a request is there: answer it now, or after those that came before it."""
        cycle = self.cycle = Answer(self, keep_alive=keep_alive)
        if self._running is None or self._running.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        task = self.loop.create_task(cycle.run_asgi(app))
        if isinstance(cycle, Answer):
            cycle.task = task
        self.tasks.add(task)

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing to warn of: no upgrade is ever taken."""

    def _look_at_clock(self) -> None:
        now = self.loop.time()
        limits = self.limits
        if self._stuck_since is not None and self._stuck_since + limits.stuck_seconds <= now:
            self.transport.abort()
            return
        if self.flow.read_paused:
            self._since = now  # it is we who do not read
        limit = limits.head_seconds if self._phase == "head" else limits.request_seconds
        if self._phase != "idle" and self._since + limit <= now:
            self._refuse("request.too_slow", f"The request was not complete after {limit:g} s.")
            return
        if self._is_idle and self._since + limits.idle_seconds <= now:
            self.transport.close()
            return
        # Whatever begins after this look gets its full time: the next one comes no later than the shortest limit.
        soonest = now + min(limits.head_seconds, limits.stuck_seconds)
        due = soonest if self._phase == "idle" else min(soonest, self._since + limit)
        self._clock = self.loop.call_at(due, self._look_at_clock)

    def _stop(self, code: str, message: str) -> NoReturn:
        self._refusal = (code, message)
        raise _Refusal

    def _refuse(self, code: str, message: str) -> None:
        """Answer what never became a request, then end the connection; an answer under way is cut instead."""
        self._refused = True
        if self._clock is not None:
            self._clock.cancel()
        if self._running is not None and not self._running.response_complete:
            under_way = self._running.response_started
            _tell_gone(self._running)
            if under_way:
                self.transport.abort()
                return
        silent = self._phase == "head" and not self._head_bytes
        if not (silent and code == "request.too_slow"):  # who never said a word is not answered
            self.transport.write(on_the_wire(CODES[code].raised_as(code, message)))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(LINGER, self.transport.close)


def bounded_http(limits: Limits) -> type[BoundedHttp]:
    """The protocol with these limits; uvicorn makes one object of it per connection."""
    return type("BoundedHttp", (BoundedHttp,), {"limits": limits})


@lru_cache(maxsize=64)
def _target(url: bytes) -> tuple[bytes, str, bytes]:
    """The path of a target as it came, the same decoded, and the query. Few are asked for again and again."""
    target = httptools.parse_url(url)
    path = target.path.decode("ascii")
    return target.path, unquote(path) if "%" in path else path, target.query or b""


def _tell_gone(cycle: RequestResponseCycle) -> None:
    if not cycle.response_complete:
        cycle.disconnected = True
    cycle.message_event.set()


def _size(headers: list[tuple[bytes, bytes]]) -> int:
    return sum(len(name) + len(value) for name, value in headers)


def _too_large(limits: Limits) -> tuple[str, str]:
    return (
        "request.headers_too_large",
        f"At most {limits.header_count} headers and {limits.head_bytes} bytes are read.",
    )
