"""One connection to a server: requests out, one after the other, and what comes back told piece by piece.

It has no task and waits for nothing: the event loop calls it when bytes come, and it calls the listener of the request
under way. A listener takes each piece at once, so nothing piles up here.

Above: `client`. Below: the event loop and httptools. It must never give bytes to a listener whose request they do not
answer, nor be used again after anything unexpected.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, cast

import httptools

HEAD_LIMIT: Final = 64 * 1024
"""The most bytes of an answer that are not its body: head, trailers, and what stands between chunks."""


class Broken(Exception):
    """An answer that did not come to its end: a code, and what the server did, as the rest of a sentence.

    `is_untouched` says that nothing of an answer had come.
    """

    def __init__(self, code: str, reason: str, *, is_untouched: bool = False) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.is_untouched = is_untouched


class Head(NamedTuple):
    """The status of an answer and its headers, their names in lower case."""

    status: int
    headers: list[tuple[bytes, bytes]]

    def get(self, name: bytes) -> str | None:
        """The first header of this name."""
        for other, value in self.headers:
            if other == name:
                return value.decode("latin-1").strip()
        return None

    def all(self, name: bytes) -> list[str]:
        """All headers of this name."""
        return [value.decode("latin-1").strip() for other, value in self.headers if other == name]


class Listener(Protocol):
    """Who hears one answer. The end is told once: by `completed` or by `broke`."""

    @property
    def is_waited_for(self) -> bool:
        """Whether anybody still wants the answer."""
        ...

    def began(self, head: Head) -> int | None:
        """The head has come; gives how many bytes of body are taken, None for a stream without end."""
        ...

    def received(self, chunk: bytes) -> None:
        """A piece of the body. May raise `Broken`, which ends the connection."""
        ...

    def completed(self) -> None:
        """The answer is complete. May raise `Broken`, which ends the connection."""
        ...

    def broke(self, broken: Broken) -> None:
        """The answer will not be completed."""
        ...


class Connection(asyncio.Protocol):
    """A connection, from the moment it stands. `on_free` hears that it can be used again, `on_lost` its end."""

    def __init__(
        self, raw: socket.socket, on_free: Callable[["Connection"], None], on_lost: Callable[["Connection"], None]
    ) -> None:
        self.uses = 0
        self.idle_since = 0.0
        self.kept_for: float | None = None  # seconds, if the server said so
        self.silent_for = 0.0  # these two are kept by the client, which looks at all connections now and then
        self.unwanted_for = 0.0
        self.was_heard = False
        self.is_stuck = False
        self._raw = raw
        self._on_free = on_free
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._listener: Listener | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._has_begun = False
        self._has_head = False
        self._is_sized = False
        self._is_reusable = True
        self._room: int | None = None
        self._overhead = 0
        self._broken: Broken | None = None

    @property
    def listener(self) -> Listener | None:
        """Who hears the answer under way."""
        return self._listener

    @property
    def is_open(self) -> bool:
        """Whether it still stands, as far as this side knows."""
        return self._transport is not None and not self._transport.is_closing()

    def is_usable(self, *, look: bool) -> bool:
        """Whether an idle connection can take a request: the other side has neither closed it nor sent anything.

        `look` asks the system, which may know of an end that the event loop was not yet told.
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

    def begin(self, payload: bytes, listener: Listener) -> None:
        """Send a request; its answer goes to the listener."""
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
        """End it at once; whoever listens is told why, if a reason is given."""
        listener, self._listener = self._listener, None
        if self._transport is not None:
            self._transport.abort()
        if listener is not None and broken is not None:
            listener.broke(broken)

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.was_heard = True
        if self._listener is None:
            self.close()  # nobody asked
            return
        self._overhead += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fault("server.reply_invalid", "wants to speak another protocol")
        except httptools.HttpParserError as error:
            self._fault("server.reply_invalid", f"gave an answer that is no proper HTTP ({error})")
        if self._overhead > HEAD_LIMIT and self.listener is not None:
            self._fault("server.reply_invalid", f"sent headers of more than {HEAD_LIMIT} bytes")
        if self._broken is not None:
            self.close(self._broken)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        listener, self._listener = self._listener, None
        self._transport = None
        if listener is not None:
            self._tell_end(listener, exc)
        self._on_lost(self)

    def pause_writing(self) -> None:
        self.is_stuck = True

    def resume_writing(self) -> None:
        self.is_stuck = False
        self.was_heard = True

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self._listener is None:
            self._fault("server.reply_invalid", "sent more than was asked for")
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
        self._room = listener.began(Head(status, self._headers))

    def on_body(self, chunk: bytes) -> None:
        self._overhead = 0
        if self._listener is None or self._broken is not None:
            return
        if self._room is not None:
            self._room -= len(chunk)
            if self._room < 0:
                self._fault("server.reply_invalid", "gave an answer that is too large")
                return
        try:
            self._listener.received(chunk)
        except Broken as broken:
            self._broken = self._broken or broken

    def on_message_complete(self) -> None:
        if not self._has_head or self._broken is not None:  # not the end: one of the answers that only say "go on"
            return
        listener, self._listener = self._listener, None
        if listener is None:
            return
        self._overhead = 0
        self._finish(listener)
        if self._is_reusable and self._broken is None:
            self._on_free(self)
        else:
            self.close()

    def _finish(self, listener: Listener) -> None:
        try:
            listener.completed()
        except Broken as broken:
            self._broken = broken
            listener.broke(broken)

    def _fault(self, code: str, reason: str) -> None:
        self._broken = self._broken or Broken(code, reason)

    def _tell_end(self, listener: Listener, exc: Exception | None) -> None:
        if self._has_head and not self._is_sized and exc is None:
            self._finish(listener)  # an answer of the old kind, which ends with its connection
            return
        did = "reset the connection" if isinstance(exc, ConnectionResetError) else "closed the connection"
        when = "in the middle of its answer" if self._has_head else "before it answered"
        listener.broke(Broken("server.ended", f"{did} {when}", is_untouched=not self._has_begun))


def _kept_seconds(value: bytes) -> float | None:
    """What a server says of how long it keeps a connection that nobody uses."""
    for part in value.split(b","):
        name, _, seconds = part.strip().partition(b"=")
        if name.lower() == b"timeout" and seconds.isdigit() and len(seconds) < 7:
            return float(seconds)
    return None
