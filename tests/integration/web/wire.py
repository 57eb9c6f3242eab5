"""Raw sockets against a real server, to send what well-behaved HTTP clients would not."""

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import SocketStream
from starlette.types import ASGIApp

from toolcrib.web.limits import WireLimits
from toolcrib.web.listen import bind, serving

BOUND = 10.0
"""Seconds after which any wait of these tests fails."""


@asynccontextmanager
async def serve(app: ASGIApp, limits: WireLimits | None = None, *, grace: int = 5) -> AsyncGenerator[int]:
    """Serve the application on a free port."""
    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    async with serving(app, listener, limits, grace=grace):
        yield port


@asynccontextmanager
async def connect(port: int) -> AsyncGenerator[SocketStream]:
    """Open a connection; every wait on it is bounded."""
    with anyio.fail_after(BOUND):
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            yield stream


async def read_to_end(stream: SocketStream) -> bytes:
    """Return everything until the server closes."""
    received = b""
    try:
        while True:
            received += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return received


async def read_until(stream: SocketStream, marker: bytes) -> bytes:
    """Return everything until the marker appears."""
    received = b""
    while marker not in received:
        received += await stream.receive()
    return received


async def exchange(port: int, request: bytes) -> bytes:
    """Send these bytes; return everything until the server closes."""
    async with connect(port) as stream:
        await stream.send(request)
        return await read_to_end(stream)


def status_of(answer: bytes) -> int:
    """Return the status of the first response in these bytes, or 0."""
    line = answer.split(b"\r\n", 1)[0].split(b" ")
    return int(line[1]) if len(line) > 1 and line[0].startswith(b"HTTP/") else 0


def statuses_of(answer: bytes) -> list[int]:
    """Return the statuses of all responses in these bytes."""
    return [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]


def raw_connection(port: int, *, receive_buffer: int | None = None) -> socket.socket:
    """Return a plain socket, for clients that do not read."""
    plain = socket.socket()
    if receive_buffer is not None:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    plain.settimeout(BOUND)
    plain.connect(("127.0.0.1", port))
    plain.setblocking(False)
    return plain
