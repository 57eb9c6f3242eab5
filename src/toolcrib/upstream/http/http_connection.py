"""One HTTP/1.1 connection: sends requests one after the other and passes each response to a listener in pieces.

It has no task and never waits: the event loop calls it with data, and it calls the listener of the current request. A
listener handles each piece at once. `FlowControl` paces the events of a stream and pauses reading from a server that
sends more than its share, so nothing accumulates here.

Must never pass bytes to a listener whose request they do not answer, nor be reused after anything unexpected.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, cast

import httptools

from toolcrib.base.processes.pipes import FlowControl

HEAD_LIMIT: Final = 64 * 1024
"""Maximum bytes of a response outside its body: head, trailers and chunk framing."""


class Broken(Exception):
    """Raised when a response is incomplete: a code, and the reason as the rest of a sentence.

    `hint` replaces the usual next step of the code. `is_untouched` is set if no byte of a response had arrived.
    """

    def __init__(self, code: str, reason: str, hint: str | None = None, *, is_untouched: bool = False) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.hint = hint
        self.is_untouched = is_untouched


class ResponseHead(NamedTuple):
    """Status and headers of a response; header names are lower-case."""

    status: int
    headers: list[tuple[bytes, bytes]]

    def get(self, name: bytes) -> str | None:
        """Return the first header of this name."""
        for other, value in self.headers:
            if other == name:
                return value.decode("latin-1").strip()
        return None

    def all(self, name: bytes) -> list[str]:
        """Return all headers of this name."""
        return [value.decode("latin-1").strip() for other, value in self.headers if other == name]


class HttpListener(Protocol):
    """Receives one response. Exactly one of `completed` and `broke` is called, once."""

    @property
    def is_waited_for(self) -> bool:
        """Whether the response is still needed."""
        ...

    def began(self, head: ResponseHead) -> int | None:
        """Take the head. Returns the maximum body size in bytes, or None for an endless stream."""
        ...

    def received(self, chunk: bytes) -> None:
        """Take a chunk of the body. May raise `Broken`, which closes the connection."""
        ...

    def completed(self) -> None:
        """Take the end of the response. May raise `Broken`, which closes the connection."""
        ...

    def broke(self, broken: Broken) -> None:
        """Take the failure of an incomplete response."""
        ...


class HttpConnection(asyncio.Protocol):
    """An established connection. Calls `on_free` when it can be reused and `on_lost` when it ends."""

    def __init__(
        self,
        raw: socket.socket,
        on_free: Callable[["HttpConnection"], None],
        on_lost: Callable[["HttpConnection"], None],
    ) -> None:
        self.uses = 0
        self.idle_since = 0.0
        self.kept_for: float | None = None  # seconds, if the server sent a timeout
        self.silent_for = 0.0  # these two are maintained by the client's timer
        self.unwanted_for = 0.0
        self.has_new_data = False
        self.is_stuck = False
        self._raw = raw
        self._on_free = on_free
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._listener: HttpListener | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._flow = FlowControl(self._feed, self._pause, self._resume)
        self._headers: list[tuple[bytes, bytes]] = []
        self._has_begun = False
        self._has_head = False
        self._is_sized = False
        self._is_reusable = True
        self._room: int | None = None
        self._overhead = 0
        self._broken: Broken | None = None

    @property
    def listener(self) -> HttpListener | None:
        """The listener of the current response."""
        return self._listener

    @property
    def is_open(self) -> bool:
        """Whether the connection is open, as far as this side knows."""
        return self._transport is not None and not self._transport.is_closing()

    def is_usable(self, *, look: bool) -> bool:
        """Return whether an idle connection can take a request: the server has neither closed it nor sent anything.

        `look` checks the socket, which may have ended before the event loop noticed.
        """
        if not self.is_open or not look:
            return self.is_open
        try:
            self._raw.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def begin(self, payload: bytes, listener: HttpListener) -> None:
        """Send a request. Its response goes to the listener."""
        assert self._transport is not None
        assert self._listener is None
        self._listener = listener
        self._has_begun = self._has_head = self._is_sized = False
        self._is_reusable = True
        self._overhead = 0
        self.silent_for = self.unwanted_for = 0.0
        self.uses += 1
        self._transport.write(payload)

    def close(self, broken: Broken | None = None) -> None:
        """Close the connection at once. If a reason is given, the listener receives it."""
        listener, self._listener = self._listener, None
        if self._transport is not None:
            self._transport.abort()
        self._flow.drop()
        if listener is not None and broken is not None:
            listener.broke(broken)

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        # Only events cost more than their bytes, and before the head it is unknown whether events follow.
        if self._has_head and self._room is not None and not self._flow.is_behind:
            self._feed(data)
        else:
            self._flow.received(data)

    def _feed(self, data: bytes) -> None:
        self.has_new_data = True
        if self._listener is None:
            self.close()  # unsolicited data
            return
        self._overhead += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fault("server.reply_invalid", "requested another protocol")
        except httptools.HttpParserError as error:
            self._fault("server.reply_invalid", f"sent an invalid HTTP response ({error})")
        if self._overhead > HEAD_LIMIT and self.listener is not None:
            self._fault("server.reply_invalid", f"sent headers of more than {HEAD_LIMIT} bytes")
        if self._broken is not None:
            self.close(self._broken)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._flow.finish(lambda: self._over(exc))

    def _over(self, exc: Exception | None) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            self._report_end(listener, exc)
        self._on_lost(self)

    def pause_writing(self) -> None:
        self.is_stuck = True

    def resume_writing(self) -> None:
        self.is_stuck = False
        self.has_new_data = True

    # Called by the parser.

    def on_message_begin(self) -> None:
        if self._listener is None:
            self._fault("server.reply_invalid", "sent a response without a request")
        self._has_begun = True
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        listener = self._listener
        if status < 200 or listener is None:
            return
        self._has_head = True
        self._is_reusable = self._parser.should_keep_alive()
        for name, value in self._headers:
            if name in (b"content-length", b"transfer-encoding"):
                self._is_sized = True
            elif name == b"keep-alive":
                self.kept_for = _kept_seconds(value)
        self._room = listener.began(ResponseHead(status, self._headers))

    def on_body(self, chunk: bytes) -> None:
        self._overhead = 0
        if self._listener is None or self._broken is not None:
            return
        if self._room is not None:
            self._room -= len(chunk)
            if self._room < 0:
                self._fault("server.reply_invalid", "sent a response that is too large")
                return
        try:
            self._listener.received(chunk)
        except Broken as broken:
            self._broken = self._broken or broken

    def on_message_complete(self) -> None:
        if not self._has_head or self._broken is not None:  # an informational response, not the final one
            return
        listener, self._listener = self._listener, None
        if listener is None:
            return
        self._overhead = 0
        self._finish(listener)
        if self._is_reusable and self._broken is None and not self._flow.is_behind:
            self._on_free(self)
        else:
            self.close()

    def _pause(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _finish(self, listener: HttpListener) -> None:
        try:
            listener.completed()
        except Broken as broken:
            self._broken = broken
            listener.broke(broken)

    def _fault(self, code: str, reason: str) -> None:
        self._broken = self._broken or Broken(code, reason)

    def _report_end(self, listener: HttpListener, exc: Exception | None) -> None:
        if self._has_head and not self._is_sized and exc is None:
            self._finish(listener)  # without a length, the response ends with the connection
            return
        did = "reset the connection" if isinstance(exc, ConnectionResetError) else "closed the connection"
        when = "during its response" if self._has_head else "before it responded"
        listener.broke(Broken("server.ended", f"{did} {when}", is_untouched=not self._has_begun))


def _kept_seconds(value: bytes) -> float | None:
    """Return the `timeout` of a `Keep-Alive` header, or None."""
    for part in value.split(b","):
        name, _, seconds = part.strip().partition(b"=")
        if name.lower() == b"timeout" and seconds.isdigit() and len(seconds) < 7:
            return float(seconds)
    return None
