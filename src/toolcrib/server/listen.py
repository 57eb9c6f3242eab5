"""Listening on loopback: one socket, bound before anything else is opened, and uvicorn on it in the running loop.

Above: `run` gives it the guarded app. Below: `http` bounds every connection. It must never bind anything but loopback,
and never touch the signals of the process: they belong to whoever started it.
"""

import asyncio
import contextlib
import errno
import ipaddress
import socket
import sys
from collections.abc import AsyncGenerator, Generator
from dataclasses import replace

import anyio
import uvicorn
from starlette.types import ASGIApp

from toolcrib.errors import ConfigError, Unavailable
from toolcrib.server.limits import Limits

if sys.platform == "win32":
    # httptools is not installed there; uvicorn's other protocol works, without our clocks.
    def _protocol(limits: Limits) -> type[asyncio.Protocol] | str:
        return "h11"
else:
    import resource

    from toolcrib.server.http import bounded_http

    def _protocol(limits: Limits) -> type[asyncio.Protocol] | str:
        # A connection is an open file: half of what the process may open is left for everything else.
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        affordable = limits.connections if files == resource.RLIM_INFINITY else min(limits.connections, files // 2)
        return bounded_http(replace(limits, connections=affordable))


BACKLOG = 2048
GRACE = 5
"""Seconds that requests under way get to finish when the crib stops."""


def bind(host: str, port: int) -> socket.socket:
    """A bound socket on loopback; port 0 takes any free one.

    Raises `bind.refused` for any other address and `bind.occupied` for a port in use.
    """
    family, address = check_loopback(host)
    # The protocol is named because asyncio sends without delay only on sockets that say they are TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":  # there it would let two programs share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise Unavailable("bind.occupied", f"Port {port} on {host} is in use by another program.") from error
        reason = error.strerror or str(error)
        raise Unavailable("bind.occupied", f"Port {port} on {host} cannot be listened on: {reason}.") from error
    return listener


def check_loopback(host: str) -> tuple[socket.AddressFamily, str]:
    """Family and address of a loopback host; raises `bind.refused` for any other."""
    if host.lower() == "localhost":
        return socket.AF_INET, "127.0.0.1"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if address is None or not address.is_loopback:
        raise ConfigError("bind.refused", f"{host} is not a loopback address.")
    return socket.AF_INET6 if address.version == 6 else socket.AF_INET, str(address)


def address_of(listener: socket.socket) -> str:
    """`127.0.0.1:4242`, `[::1]:4242`: where it listens."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if listener.family == socket.AF_INET6 else f"{host}:{port}"


class _Server(uvicorn.Server):
    """uvicorn without signal handlers, which says when it listens, and ends when told to instead of looking often."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = anyio.Event()
        self._leaving = anyio.Event()

    def leave(self) -> None:
        """End, with what is under way."""
        self.should_exit = True
        self._leaving.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # it keeps the date that answers have
            with anyio.move_on_after(1):
                await self._leaving.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp, listener: socket.socket, limits: Limits | None = None, *, grace: int = GRACE
) -> AsyncGenerator[None]:
    """Serve on this socket; at the end requests under way get `grace` seconds, then they are cancelled."""
    server = _Server(_config(app, limits or Limits(), grace))
    # No task group: it would wrap whatever the body raises into a group, and callers wait for single errors.
    task = asyncio.create_task(server.serve([listener]))
    try:
        with anyio.fail_after(10):
            await server.listening.wait()
        yield
    finally:
        server.leave()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task], timeout=grace + 5)
            if server.server_state.tasks:
                await asyncio.wait(server.server_state.tasks, timeout=1)
    task.result()


def _config(app: ASGIApp, limits: Limits, grace: int) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # pyright: ignore[reportArgumentType] Starlette's type of the same thing
        http=_protocol(limits),
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
