"""Listens: binds one socket before anything else is opened, and runs uvicorn on it in the current loop.

`public` decides whether an address that other machines can reach is allowed. Must never install signal handlers:
signals belong to the caller.
"""

import asyncio
import contextlib
import errno
import ipaddress
import socket
import ssl
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import anyio
import uvicorn
from starlette.types import ASGIApp

from toolcrib.model.errors import ConfigError, Unavailable
from toolcrib.web.connections import Connections
from toolcrib.web.limits import WireLimits

if sys.platform == "win32":
    # httptools is not installed on Windows. uvicorn's h11 protocol works, without our timeouts.
    def _protocol(limits: WireLimits, table: Connections) -> type[asyncio.Protocol] | str:
        return "h11"

    def _table(limits: WireLimits, in_use: int) -> Connections:
        return Connections(limits.connections)

    _acceptor = None
else:
    from toolcrib.web.accepting import Acceptor, affordable
    from toolcrib.web.http import bounded_http

    def _protocol(limits: WireLimits, table: Connections) -> type[asyncio.Protocol] | str:
        return bounded_http(limits, table)

    def _table(limits: WireLimits, in_use: int) -> Connections:
        # A connection is an open file: half of the remaining descriptors are left for everything else.
        return Connections(affordable(limits.connections, in_use))

    _acceptor = Acceptor


BACKLOG = 2048
GRACE = 5
"""Seconds that requests in flight get to finish when the crib stops."""


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to loopback; port 0 picks a free port.

    Raises `bind.refused` for any other address and `bind.occupied` for a port in use.
    """
    return bind_any(*check_loopback(host), port)


def bind_any(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    """Return a socket bound to any address of this machine. Raises `bind.occupied`."""
    # asyncio sets TCP_NODELAY only on sockets with an explicit TCP protocol.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":  # on Windows it would let two programs share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise Unavailable("bind.occupied", f"Port {port} on {address} is in use by another program.") from error
        reason = error.strerror or str(error)
        raise Unavailable("bind.occupied", f"Port {port} on {address} is not available: {reason}.") from error
    return listener


def check_loopback(host: str) -> tuple[socket.AddressFamily, str]:
    """Return the family and address of a loopback host. Raises `bind.refused` for any other host."""
    if host.lower() == "localhost":
        return socket.AF_INET, "127.0.0.1"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if address is None or not address.is_loopback:
        raise ConfigError("bind.refused", f"{host} is not a loopback address.")
    return socket.AF_INET6 if address.version == 6 else socket.AF_INET, str(address)


def is_loopback(host: str) -> bool:
    """Return whether a host is loopback."""
    try:
        check_loopback(host)
    except ConfigError:
        return False
    return True


def address_of(listener: socket.socket) -> str:
    """Return the listener's address, such as `127.0.0.1:4242` or `[::1]:4242`."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if listener.family == socket.AF_INET6 else f"{host}:{port}"


class _Server(uvicorn.Server):
    """uvicorn without signal handlers. Signals when it listens, and exits on an event instead of polling."""

    def __init__(self, config: uvicorn.Config, table: Connections, tls: ssl.SSLContext | None) -> None:
        super().__init__(config)
        self._table = table
        self._tls = tls
        self.listening = anyio.Event()
        self._leaving = anyio.Event()

    def leave(self) -> None:
        """Shut down."""
        self.should_exit = True
        self._leaving.set()

    def hurry(self) -> None:
        """Drop the grace period: cancel requests in flight on shutdown."""
        self.config.timeout_graceful_shutdown = 0

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # updates the Date header
            with anyio.move_on_after(1):
                await self._leaving.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if _acceptor is None:
            await super().startup(sockets)
        else:
            self.servers = [_acceptor(each, self._connection, self._table, self._tls) for each in sockets or ()]  # pyright: ignore[reportAttributeAccessIssue] close and wait_closed are all that is used
            self.started = True
        self.listening.set()

    def _connection(self) -> asyncio.Protocol:
        config: Any = self.config
        return config.http_protocol_class(config=config, server_state=self.server_state, app_state=self.lifespan.state)


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp,
    listener: socket.socket,
    limits: WireLimits | None = None,
    *,
    grace: int = GRACE,
    tls: ssl.SSLContext | None = None,
) -> AsyncGenerator[Callable[[], None]]:
    """Serve on this socket. On exit, requests in flight get `grace` seconds and are then cancelled.

    Yields a function that drops the grace period.
    """
    limits = limits or WireLimits()
    table = _table(limits, listener.fileno() + 1)
    server = _Server(_config(app, limits, table, grace), table, tls)
    # A task group would wrap the body's exception in a group, but callers expect single errors.
    task = asyncio.create_task(server.serve([listener]))
    try:
        with anyio.fail_after(10):
            await server.listening.wait()
        yield server.hurry
    finally:
        server.leave()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task], timeout=grace + 5)
            if server.server_state.tasks:
                await asyncio.wait(server.server_state.tasks, timeout=1)
    task.result()


def _config(app: ASGIApp, limits: WireLimits, table: Connections, grace: int) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # pyright: ignore[reportArgumentType] Starlette's type of the same thing
        http=_protocol(limits, table),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=limits.idle_seconds,
        timeout_graceful_shutdown=grace,
    )
