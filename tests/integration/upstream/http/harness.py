"""Servers on loopback: the official server in all its forms, and raw servers that follow a script."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import anyio
import anyio.lowlevel
import orjson
import pytest
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel
from starlette.types import ASGIApp

from integration.upstream.oauth.authority import listening_socket, shared_web
from toolcrib.base.network.urls import check_url
from toolcrib.model.json import JsonObject
from toolcrib.model.protocol import MODERN_VERSION, Era
from toolcrib.upstream.connection import Connection
from toolcrib.upstream.handshake import ClientIntroduction, ServerIntroduction
from toolcrib.upstream.http.handshake import WebTransport, open_web_server
from toolcrib.upstream.oauth.token_refresh import Bearer

LOOPS = [
    pytest.param("asyncio", id="asyncio"),
    pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
]
"""The event loops a crib runs on: embedded, and under the server."""
HELLO = ClientIntroduction({"name": "test", "version": "0"}, {"elicitation": {"form": {}}})
ENVELOPE: JsonObject = {"_meta": HELLO.envelope()}
DISCOVERED: JsonObject = {
    "supportedVersions": [MODERN_VERSION],
    "capabilities": {"tools": {}},
    "resultType": "complete",
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "raw", "version": "1"}},
}
INITIALIZED: JsonObject = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {"listChanged": True}},
    "serverInfo": {"name": "raw", "version": "1"},
}

OpeningConnection = AbstractAsyncContextManager[tuple[Connection, ServerIntroduction]]


def open_connection(
    url: str,
    *,
    transport: WebTransport = "http",
    headers: Mapping[str, str] | None = None,
    bearer: Bearer | None = None,
    era: Era | None = None,
    connect_wait: float = 10,
    idle_wait: float = 20,
) -> OpeningConnection:
    """Open a connection to the server at this address."""
    return open_web_server(
        shared_web(),
        "lab",
        check_url(url, local_allowed=True),
        transport=transport,
        headers=headers or {},
        bearer=bearer,
        local_allowed=True,
        hello=HELLO,
        era=era,
        connect_wait=connect_wait,
        idle_wait=idle_wait,
    )


async def call(connection: Connection, tool: str, era: Era = "modern", **arguments: object) -> JsonObject:
    """Call a tool in the given era."""
    params: JsonObject = {"name": tool, "arguments": arguments}
    return await connection.call("tools/call", {**params, **ENVELOPE} if era == "modern" else params)


class Name(BaseModel):
    """The form that the official server sends."""

    name: str


def official() -> tuple[MCPServer, list[str]]:
    """Return the official server with a tool for each behaviour, and a list of its cancelled calls."""
    server = MCPServer("official", instructions="Be kind.")
    cancelled: list[str] = []

    async def echo(text: str) -> str:
        return text

    async def count(context: Context) -> str:
        for number in (1, 2, 3):
            await context.report_progress(number, 3, f"at {number}")
        return "counted"

    async def wait(context: Context) -> str:
        await context.report_progress(0, 1, "waiting")
        try:
            await anyio.sleep_forever()
        except BaseException:
            cancelled.append("wait")
            raise
        return "never"

    async def ask(context: Context) -> str:
        answer = await context.elicit("Who?", Name)
        return answer.data.name if answer.action == "accept" else answer.action

    async def grow(context: Context) -> str:
        await context.session.send_tool_list_changed()
        return "grown"

    async def fail() -> str:
        raise ValueError("on purpose")

    for tool in (echo, count, wait, ask, grow, fail):
        server.add_tool(tool)
    return server, cancelled


Form = Literal["stateful", "stateful-json", "stateless", "stateless-json"]


@asynccontextmanager
async def official_server(form: Form = "stateful") -> AsyncGenerator[tuple[str, list[str]]]:
    """Run the official server over Streamable HTTP; yield its address and its cancelled calls."""
    server, cancelled = official()
    app = server.streamable_http_app(json_response=form.endswith("json"), stateless_http=form.startswith("stateless"))
    async with serve_app(app) as port:
        yield f"http://127.0.0.1:{port}/mcp", cancelled


@asynccontextmanager
async def serve_app(app: ASGIApp) -> AsyncGenerator[int]:
    """Serve an application with its lifespan; yield the port."""
    sock, port = listening_socket()
    config = uvicorn.Config(app, log_level="critical", ws="none", timeout_graceful_shutdown=1, access_log=False)
    server = uvicorn.Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(server.serve, sockets=[sock]))
        try:
            yield port
        finally:
            server.should_exit = True
    for connection in tuple(server.server_state.connections):  # those that outlived the grace period
        if (transport := getattr(connection, "transport", None)) is not None:
            transport.abort()
    await anyio.lowlevel.checkpoint()


@dataclass
class Request:
    """A request as a raw server received it."""

    verb: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> JsonObject:
        """The JSON of the body."""
        return orjson.loads(self.body)

    @property
    def method(self) -> str:
        """The method of the message, or the HTTP method if there is no body."""
        return self.message.get("method", "") if self.body else self.verb

    @property
    def tool(self) -> str:
        """The name of the called tool."""
        return self.message["params"]["name"]


Script = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class RawServer:
    """A raw server. `requests` has every request; `closed` counts the connections that the client closed."""

    url: str = ""
    requests: list[Request] = field(default_factory=list[Request])
    connections: int = 0
    closed: int = 0

    def count(self, method: str) -> int:
        """Return the number of requests with a method."""
        return sum(request.method == method for request in self.requests)


@asynccontextmanager
async def raw_server(script: Script) -> AsyncGenerator[RawServer]:
    """Run a server that answers each request by the script. A request without an answer stays open."""
    raw = RawServer()
    handlers: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        raw.connections += 1
        try:
            while server.is_serving() and (request := await _read(reader)) is not None:
                raw.requests.append(request)
                await script(request, writer)
            raw.closed += 1
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            raw.closed += 1
        finally:
            writer.transport.abort()
            handlers.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    raw.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    try:
        yield raw
    finally:
        server.close()
        for task in tuple(handlers):
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
        await server.wait_closed()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    start, *lines = head.decode("latin-1").split("\r\n")
    verb, path, _ = start.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(verb, path, headers, body)


def http_response(
    body: bytes, status: str = "200 OK", kind: str = "application/json", headers: Mapping[str, str] | None = None
) -> bytes:
    """Return a whole HTTP response."""
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


def result_response(request: Request, value: JsonObject, headers: Mapping[str, str] | None = None) -> bytes:
    """Return a whole HTTP response with a JSON-RPC result."""
    message = {"jsonrpc": "2.0", "id": request.message["id"], "result": value}
    return http_response(orjson.dumps(message), headers=headers)


STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """Return a chunk of a body of unknown length."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def sse_event(message: JsonObject | None, event_id: str | None = None, more: str = "") -> bytes:
    """Return an event as a chunk of a stream."""
    head = (f"id: {event_id}\n" if event_id else "") + more
    data = orjson.dumps(message) if message is not None else b""
    return chunk(head.encode() + b"data: " + data + b"\n\n")


def result_message(request: Request, value: JsonObject) -> JsonObject:
    """Return the JSON-RPC message with the result of a request."""
    return {"jsonrpc": "2.0", "id": request.message["id"], "result": value}
