"""A minimal MCP client of spec 2026-07-28 over HTTP/1.1, so that a measurement shows the server.

Requests are prepared as bytes; only the id is filled in. Answers are split at their Content-Length and not parsed here.
The client treats all servers alike.

"""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

PREFIX = "io.modelcontextprotocol/"
VERSION = "2026-07-28"
ENVELOPE = {
    PREFIX + "protocolVersion": VERSION,
    PREFIX + "clientInfo": {"name": "bench", "version": "1"},
    PREFIX + "clientCapabilities": {},
}
FIRST_ID = 1_000_000  # ids of one width keep Content-Length constant

MakeRequest = Callable[[int], bytes]


class BadAnswer(Exception):
    """The server answered something other than the expected success."""


@dataclass(frozen=True)
class Address:
    """The URL of an MCP endpoint and its credentials."""

    url: str
    token: str | None = None


def prepare(address: Address, method: str, params: dict[str, Any], name: str | None = None) -> MakeRequest:
    """Return a function from id to the whole request: head and body."""
    parts = urlsplit(address.url)
    body = json.dumps({"jsonrpc": "2.0", "id": FIRST_ID, "method": method, "params": {**params, "_meta": ENVELOPE}})
    head = [
        f"POST {parts.path} HTTP/1.1",
        f"Host: {parts.netloc}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"MCP-Protocol-Version: {VERSION}",
        f"Mcp-Method: {method}",
        *([f"Mcp-Name: {name}"] if name else []),
        *([f"Authorization: Bearer {address.token}"] if address.token else []),
        f"Content-Length: {len(body.encode())}",
    ]
    before, after = ("\r\n".join(head) + "\r\n\r\n" + body).encode().split(str(FIRST_ID).encode(), 1)
    return lambda request_id: before + str(request_id).encode() + after


def plain(address: Address, method: str, path: str) -> bytes:
    """Return a request without a body for a path beside the endpoint."""
    head = [
        f"{method} {path} HTTP/1.1",
        f"Host: {urlsplit(address.url).netloc}",
        *([f"Authorization: Bearer {address.token}"] if address.token else []),
        "Content-Length: 0",
    ]
    return ("\r\n".join(head) + "\r\n\r\n").encode()


class Connection(asyncio.Protocol):
    """One keep-alive connection with one request in flight."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._body_at = 0
        self._whole = 0
        self._waiting: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, address: Address) -> "Connection":
        """Connect."""
        parts = urlsplit(address.url)
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(cls, parts.hostname or "", parts.port or 80)
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request in flight."""
        if self._waiting and not self._waiting.done():
            self._waiting.set_exception(BadAnswer("The server closed the connection."))

    def data_received(self, data: bytes) -> None:
        """Collect data until the answer is complete."""
        received = self._received
        received += data
        if not self._whole:
            end = received.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(received[:end]).lower()
            length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
            if not head.startswith(b"http/1.1 200") or not length:
                self._finish(BadAnswer(f"Not a plain 200: {bytes(received[:600])!r}"))
                return
            self._body_at = end + 4
            self._whole = self._body_at + int(length)
        if len(received) >= self._whole:
            self._finish(bytes(received[self._body_at : self._whole]))

    def _finish(self, outcome: bytes | BadAnswer) -> None:
        waiting, self._waiting = self._waiting, None
        self._received.clear()
        self._whole = 0
        if waiting is None or waiting.done():
            return
        if isinstance(outcome, BadAnswer):
            waiting.set_exception(outcome)
        else:
            waiting.set_result(outcome)

    def send(self, request: bytes) -> "asyncio.Future[bytes]":
        """Send one request. The future resolves to the body of its answer."""
        assert self._transport is not None
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._waiting

    def close(self) -> None:
        """Close at once."""
        if self._transport:
            self._transport.abort()


async def load(address: Address, make: MakeRequest, expect: bytes, concurrency: int, seconds: float) -> list[float]:
    """Keep `concurrency` requests in flight for some seconds. Return the latency of each in seconds."""
    connections = [await Connection.open(address) for _ in range(concurrency)]
    latencies: list[float] = []
    clock = time.perf_counter
    end = clock() + seconds

    async def work(connection: Connection, first: int) -> None:
        request_id = first
        started = clock()
        while started < end:
            body = await connection.send(make(request_id))
            now = clock()
            if expect not in body:
                raise BadAnswer(f"Expected {expect!r} in {body[:600]!r}")
            latencies.append(now - started)
            started = now
            request_id += concurrency

    try:
        async with asyncio.timeout(seconds + 30), asyncio.TaskGroup() as workers:
            for index, connection in enumerate(connections):
                workers.create_task(work(connection, FIRST_ID + index))
    finally:
        for connection in connections:
            connection.close()
    return latencies


async def list_all(address: Address, connection: Connection) -> tuple[int, int, int]:
    """Fetch one whole `tools/list`, page by page. Return the numbers of tools, pages and bytes."""
    tools = pages = size = 0
    cursor: str | None = None
    while True:
        make = prepare(address, "tools/list", {} if cursor is None else {"cursor": cursor})
        async with asyncio.timeout(60):
            body = await connection.send(make(FIRST_ID + pages))
        result = json.loads(body).get("result")
        if result is None:
            raise BadAnswer(f"No list: {body[:600]!r}")
        tools, pages, size = tools + len(result["tools"]), pages + 1, size + len(body)
        cursor = result.get("nextCursor")
        if cursor is None:
            return tools, pages, size
