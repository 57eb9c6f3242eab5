"""A minimal HTTP/1.1 client for the crib on this machine, built on the standard library.

A front that only joins a crib needs no more: it starts with 90 ms of CPU and 29 MB (bench: stdio joins), and importing
httpx2 alone would add 50 ms and 7 MB.
Connections are pooled. Cancelling a request closes its connection, which the crib treats as a disconnect.

Must never follow a redirect, use a proxy or send the token to any other address.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

CONNECT_SECONDS = 5.0
KEEP_SECONDS = 20.0
"""How long an unused connection is kept. The crib's own idle timeout is longer."""
_LONGEST_LINE = 1024 * 1024


class Unreached(Exception):
    """Raised when the connection could not be opened: the request was not sent."""


class Lost(Exception):
    """Raised when the connection ended before the response was complete: the request may have been processed."""


class _Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    used_at: float

    @property
    def is_usable(self) -> bool:
        is_open = not self.writer.is_closing() and not self.reader.at_eof()
        return is_open and time.monotonic() - self.used_at < KEEP_SECONDS


class Response:
    """A response whose body can be read once, whole or in pieces."""

    def __init__(self, head: bytes, reader: asyncio.StreamReader) -> None:
        status, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(status.split(" ", 2)[1])
        pairs = (line.partition(":") for line in lines if line)
        self.headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        self._reader = reader
        self.is_complete = False

    @property
    def keeps_open(self) -> bool:
        """Whether the connection can be reused, once the body has been read."""
        return self.is_complete and self.headers.get("connection", "").lower() != "close"

    async def read(self) -> bytes:
        """Return the whole body."""
        return b"".join([piece async for piece in self.pieces()])

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body in pieces as they arrive."""
        with _failing():
            if self.headers.get("transfer-encoding", "").lower() == "chunked":
                while size := int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16):
                    yield (await self._reader.readexactly(size + 2))[:-2]
                await self._reader.readuntil(b"\r\n")
            elif size := int(self.headers.get("content-length", "0")):
                yield await self._reader.readexactly(size)
        self.is_complete = True


class LoopbackHttp:
    """Sends requests with one token. Call `close` when done."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._idle: dict[str, list[_Connection]] = {}

    @asynccontextmanager
    async def stream(
        self, method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[Response]:
        """Send a request and yield its response. Raises `Unreached` or `Lost`."""
        parts = urlsplit(url)
        connection = self._idle_connection(parts.netloc) or await self._connect(parts.hostname or "", parts.port or 0)
        response: Response | None = None
        try:
            target = parts.path + (f"?{parts.query}" if parts.query else "")
            response = await self._ask(connection, method, parts.netloc, target, body, headers or {})
            yield response
        finally:
            if response is not None and response.keeps_open:
                kept = _Connection(connection.reader, connection.writer, time.monotonic())
                self._idle.setdefault(parts.netloc, []).append(kept)
            else:
                connection.writer.close()

    def close(self) -> None:
        """Close the idle connections."""
        for connections in self._idle.values():
            for connection in connections:
                connection.writer.close()
        self._idle.clear()

    def idle(self, address: str) -> tuple["_Connection", ...]:
        """Return the idle connections to this `host:port`."""
        return tuple(self._idle.get(address, ()))

    def _idle_connection(self, address: str) -> _Connection | None:
        connections = self._idle.get(address, [])
        while connections:
            connection = connections.pop()
            if connection.is_usable:
                return connection
            connection.writer.close()
        return None

    async def _connect(self, host: str, port: int) -> _Connection:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                streams = await asyncio.open_connection(host, port, limit=_LONGEST_LINE)
        except (OSError, TimeoutError) as error:
            raise Unreached(f"{host}:{port} refused the connection") from error
        return _Connection(*streams, time.monotonic())

    async def _ask(
        self,
        connection: _Connection,
        method: str,
        host: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> Response:
        lines = [f"{method} {target} HTTP/1.1", f"host: {host}", f"authorization: Bearer {self._token}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None:
            lines.append(f"content-length: {len(body)}")
        with _failing():
            connection.writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""))
            await connection.writer.drain()
            return Response(await connection.reader.readuntil(b"\r\n\r\n"), connection.reader)


class _failing:
    """Converts the errors of a broken connection to `Lost`."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (OSError, EOFError, asyncio.LimitOverrunError, ValueError, IndexError)):
            raise Lost(f"The connection ended ({type(error).__name__})") from error
