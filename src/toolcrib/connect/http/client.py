"""The lean HTTP client: connections to one origin, kept and used again.

One write per request, no task and no timer of its own: a single timer looks at all connections now and then. Nothing is
followed, unpacked or taken from the environment.

A kept connection may be closed by the server in the moment in which a request is sent on it. Then nobody knows whether
the request was read. So a request that must not run twice is given only to connections that were used a moment ago, or
for which the server promised a longer life; one that may be repeated is given to any.

Above: `requests`. Below: `connection`, and `dial`, which decides where a connection may lead. It must never send to
another origin than its own.
"""

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import anyio

from toolcrib.connect.dial import first_standing, judge_for, judged_addresses
from toolcrib.connect.http.connection import Broken, Connection, Listener
from toolcrib.connect.urls import CheckedUrl, as_address
from toolcrib.connect.web import Web

MOST_CONNECTIONS: Final = 256
_KEPT_CONNECTIONS = 32
_KEPT_SECONDS = 60.0
_JUST_NOW = 0.1
_SURE_SECONDS = 4.0  # the shortest life that servers commonly give a connection is five
_MARGIN_SECONDS = 1.0
_UNWANTED_SECONDS = 5.0
_LONGEST_TICK = 5.0
_CLOSE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds to wait: `connect` for a connection, `silence` for the next byte of an answer, `write` for a server
    that takes nothing of what is sent to it."""

    connect: float = 30.0
    silence: float = 300.0
    write: float = 30.0


class Unreachable(Exception):
    """No connection could be made, so nothing was sent. The message says why, as a sentence."""


class HttpClient:
    """All connections to one origin, closed at the end of the block."""

    def __init__(
        self, web: Web, url: CheckedUrl, *, local_allowed: bool, patience: Patience, most: int = MOST_CONNECTIONS
    ) -> None:
        self.patience = patience
        self._web = web
        self._url = url
        self._judge = judge_for(url.scheme, local_allowed=local_allowed)
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._connections: set[Connection] = set()
        self._idle: list[Connection] = []
        self._dialling = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._tick = min(_LONGEST_TICK, patience.silence / 10, patience.write / 10)
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._all_lost = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in tuple(self._connections):
            connection.close(Broken("server.ended", "was disconnected"))
        if self._connections:
            with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                await self._all_lost.wait()

    async def send(self, payload: bytes, listener: Listener, *, may_repeat: bool, on_new: bool = False) -> Connection:
        """Send a whole request, on a kept connection if one will do. Raises `Unreachable`, or `address.refused`.

        Waits for nothing but a connection; the answer goes to the listener.
        """
        connection = None if on_new else self._kept(may_repeat)
        if connection is None:
            connection = await self._new(may_repeat)
        connection.begin(payload, listener)
        return connection

    def _kept(self, may_repeat: bool) -> Connection | None:
        now = self._loop.time()
        while self._idle:
            connection = self._idle[-1]
            if not may_repeat and now - connection.idle_since > _sure_for(connection):
                return None  # the others are older still; they serve requests that may be repeated
            self._idle.pop()
            # What was used just now is known to stand: the event loop would have told its end.
            if connection.is_usable(look=now - connection.idle_since > _JUST_NOW):
                return connection
            connection.close()
        return None

    async def _new(self, may_repeat: bool) -> Connection:
        try:
            with anyio.fail_after(self.patience.connect):
                while len(self._connections) + self._dialling >= self._most:
                    if self._idle:
                        self._idle.pop(0).close()
                        break
                    await self._room()
                    if (kept := self._kept(may_repeat)) is not None:
                        return kept
                return await self._dial()
        except TimeoutError:
            reason = f"it could not be reached within {self.patience.connect:g} seconds"
            raise Unreachable(reason) from None

    async def _room(self) -> None:
        turn = self._loop.create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            with contextlib.suppress(ValueError):
                self._queue.remove(turn)
            if turn.done() and not turn.cancelled():
                self._next_turn()
            raise

    def _next_turn(self) -> None:
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    async def _dial(self) -> Connection:
        if self._is_closed:
            raise Unreachable("the connection to it was ended")
        self._dialling += 1
        url = self._url
        try:
            addresses = await judged_addresses(self._web.resolve, url.host, url.port, self._judge)
            raw = await first_standing(addresses, lambda address: self._web.connect(address, url.port), _discard)
            return await self._secured(raw)
        except ssl.SSLCertVerificationError as error:
            raise Unreachable(f"its certificate is not accepted: {error.verify_message}") from error
        except ssl.SSLError as error:
            raise Unreachable(f"no safe connection could be agreed on ({error.reason or error})") from error
        except TimeoutError:
            raise
        except OSError as error:
            raise Unreachable(f"no connection to {url.host}:{url.port}: {_in_words(error)}") from error
        finally:
            self._dialling -= 1

    async def _secured(self, raw: socket.socket) -> Connection:
        is_secure = self._url.scheme == "https"
        try:
            _, connection = await self._loop.create_connection(
                lambda: Connection(raw, self._freed, self._lost),
                sock=raw,
                ssl=self._web.ssl_context if is_secure else None,
                server_hostname=_server_name(self._url.host) if is_secure else None,
            )
        except BaseException:
            raw.close()
            raise
        if self._is_closed:
            connection.close()
            raise Unreachable("the connection to it was ended")
        self._connections.add(connection)
        if self._timer is None:
            self._timer = self._loop.call_later(self._tick, self._look)
        return connection

    def _freed(self, connection: Connection) -> None:
        if self._is_closed or (len(self._idle) >= _KEPT_CONNECTIONS and not self._queue):
            connection.close()
            return
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        self._next_turn()

    def _lost(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._next_turn()
        if self._is_closed and not self._connections:
            self._all_lost.set()

    def _look(self) -> None:
        """End what waits too long. A quiet answer is measured in ticks, so that hearing one costs nothing."""
        now = self._loop.time()
        for connection in tuple(self._connections):
            if connection.listener is not None:
                self._look_at(connection, connection.listener)
            elif now - connection.idle_since > _KEPT_SECONDS:
                connection.close()
        self._timer = self._loop.call_later(self._tick, self._look) if self._connections else None

    def _look_at(self, connection: Connection, listener: Listener) -> None:
        connection.silent_for = 0.0 if connection.was_heard else connection.silent_for + self._tick
        connection.was_heard = False
        if not listener.is_waited_for:
            connection.unwanted_for += self._tick
            if connection.unwanted_for > _UNWANTED_SECONDS:
                connection.close(Broken("server.ended", "went on after its answer"))
        elif connection.is_stuck and connection.silent_for >= self.patience.write:
            connection.close(Broken("server.stuck", "does not read what is sent to it"))
        elif connection.silent_for >= self.patience.silence:
            reason = f"sent nothing for {self.patience.silence:g} seconds"
            connection.close(Broken("server.timeout", reason))


async def _discard(raw: socket.socket) -> None:
    raw.close()


def _sure_for(connection: Connection) -> float:
    """How long after its last use a connection is certain not to be closed just now."""
    return _SURE_SECONDS if connection.kept_for is None else connection.kept_for - _MARGIN_SECONDS


def _server_name(host: str) -> str:
    """A name whose certificate is checked; an address in the form that certificates have."""
    address = as_address(host)
    return host if address is None else str(address)


def _in_words(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).rstrip(".")
