"""Faulty HTTP servers connected to a whole crib: resets, hung connections, invalid replies, forgotten MCP sessions."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from integration.faults.harness import HEALTHY, Machine, call, text_of, until_state, with_healthy_calls
from integration.upstream.http.harness import (
    DISCOVERED,
    INITIALIZED,
    STREAM,
    Request,
    chunk,
    http_response,
    official_server,
    raw_server,
    result_response,
)
from lab import eventually
from long_tests import takes_long
from toolcrib.model.json import JsonObject
from toolcrib.web.api_client.api_client import ApiClient

pytestmark = [pytest.mark.anyio, takes_long]

Answer = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]
TOOLS: JsonObject = {"tools": [{"name": "echo", "inputSchema": {"type": "object", "properties": {}}}]}
SECRET = "sekrit-in-a-header"


def modern_server(on_call: Answer) -> Answer:
    """Return a modern server that answers `tools/call` with `on_call` and everything else correctly."""

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        match request.method:
            case "server/discover":
                writer.write(result_response(request, DISCOVERED))
            case "tools/list":
                writer.write(result_response(request, TOOLS))
            case "tools/call":
                await on_call(request, writer)
            case _:
                error = b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32601,"message":"No"}}' % request.message["id"]
                writer.write(http_response(error))

    return script


async def reset(request: Request, writer: asyncio.StreamWriter) -> None:
    """Close the connection without an answer."""
    writer.transport.abort()


async def truncated_body(request: Request, writer: asyncio.StreamWriter) -> None:
    """Close the connection in the middle of the answer."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{")
    await writer.drain()
    writer.transport.abort()


async def truncated_stream(request: Request, writer: asyncio.StreamWriter) -> None:
    """Close a stream before the answer."""
    writer.write(STREAM + chunk(b": soon\n\n"))
    await writer.drain()
    writer.transport.abort()


async def html_page(request: Request, writer: asyncio.StreamWriter) -> None:
    """Answer with an HTML page."""
    writer.write(http_response(b"<html>Welcome</html>", kind="text/html"))


async def no_content(request: Request, writer: asyncio.StreamWriter) -> None:
    """Answer without content."""
    writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")


async def garbage(request: Request, writer: asyncio.StreamWriter) -> None:
    """Answer with bytes that are not HTTP."""
    writer.write(b"\x00\xff" * 100 + b"\r\n\r\n")


async def unavailable(request: Request, writer: asyncio.StreamWriter) -> None:
    """Answer 503 with an absurd `Retry-After`."""
    writer.write(http_response(b"", "503 Service Unavailable", headers={"retry-after": "1000000000"}))


async def redirect_loop(request: Request, writer: asyncio.StreamWriter) -> None:
    """Redirect to the same address."""
    writer.write(http_response(b"", "307 Temporary Redirect", headers={"location": "/mcp"}))


async def leaking_error(request: Request, writer: asyncio.StreamWriter) -> None:
    """Fail with an error that repeats the client's secret."""
    writer.write(http_response(request.headers["x-api-key"].encode(), "500 Internal Server Error", "text/plain"))


async def endless_stream(request: Request, writer: asyncio.StreamWriter) -> None:
    """Send an endless stream without an answer."""
    writer.write(STREAM)
    while True:
        writer.write(chunk(b"data: " + b"x" * 65_000 + b"\n"))
        await writer.drain()


@pytest.mark.parametrize(
    "fault",
    [
        reset,
        truncated_body,
        truncated_stream,
        html_page,
        no_content,
        garbage,
        unavailable,
        redirect_loop,
        leaking_error,
        endless_stream,
    ],
    ids=lambda f: f.__name__,
)
async def test_call_to_faulty_http_server_fails_once_without_leaking_secrets(
    machine: Machine, fault: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    async with raw_server(modern_server(fault)) as raw:
        definition: JsonObject = {"type": "http", "url": f"{raw.url}?key={SECRET}", "headers": {"X-Api-Key": SECRET}}
        async with machine.crib(bad=definition, healthy=HEALTHY) as (_, client):
            await until_state(client, "bad", "connected")
            answers: list[JsonObject] = []

            async def call_bad() -> None:
                answers.append(await call(client, "bad/echo"))

            await with_healthy_calls(client, call_bad)
            assert answers[0]["isError"]
            assert text_of(answers[0]).startswith("MCP error: ")
            assert raw.count("tools/call") == 1, "a call that may have run is not retried"
            shown = [answers, await client.servers(), await client.audit(), await client.tool_problems(), caplog.text]
            assert [each for each in shown if SECRET in str(each)] == []


async def test_hung_http_call_times_out_without_delaying_other_servers(machine: Machine) -> None:
    async def hold(request: Request, writer: asyncio.StreamWriter) -> None:
        pass

    async with raw_server(modern_server(hold)) as raw:
        definition: JsonObject = {"type": "http", "url": raw.url, "timeout": 700}
        async with machine.crib(bad=definition, healthy=HEALTHY) as (_, client):
            await until_state(client, "bad", "connected")
            answers: list[JsonObject] = []

            async def call_bad() -> None:
                answers.append(await call(client, "bad/echo"))

            await with_healthy_calls(client, call_bad)
            assert answers[0]["isError"]
            await eventually(lambda: raw.closed > 0)  # closing the connection cancels the request


async def test_forgotten_mcp_session_is_reopened_and_the_call_sent_once(machine: Machine) -> None:
    sessions: list[str] = []
    forgotten: set[str] = set()
    calls: list[str] = []

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        session = request.headers.get("mcp-session-id", "")
        if request.verb != "POST":
            writer.write(http_response(b"", "405 Method Not Allowed"))
        elif request.method == "server/discover":
            writer.write(
                http_response(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"No"}}', "400 Bad Request")
            )
        elif request.method == "initialize":
            sessions.append(f"session-{len(sessions)}")
            writer.write(result_response(request, INITIALIZED, {"mcp-session-id": sessions[-1]}))
        elif session in forgotten:
            writer.write(http_response(b"", "404 Not Found"))
        elif "id" not in request.message:
            writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
        elif request.method == "tools/list":
            writer.write(result_response(request, TOOLS))
        else:
            calls.append(session)
            writer.write(result_response(request, {"content": []}))

    async with raw_server(script) as raw, machine.crib(old={"type": "http", "url": raw.url}) as (_, client):
        await until_state(client, "old", "connected")
        for number in range(3):
            assert not (await call(client, "old/echo"))["isError"]
            forgotten.update(sessions)
            assert not (await call(client, "old/echo"))["isError"]
            assert len(sessions) == number + 2
        assert calls == ["session-0", "session-1", "session-1", "session-2", "session-2", "session-3"]


async def test_concurrent_calls_receive_their_own_results(machine: Machine) -> None:
    async with official_server() as (url, _), machine.crib(there={"type": "http", "url": url}) as (_, client):
        await until_state(client, "there", "connected")
        assert text_of(await call(client, "there/echo", text="first")) == "first"
        await call_concurrently(client)


async def call_concurrently(client: ApiClient) -> None:
    """Make fifty calls at once and compare the results."""
    answers: dict[int, Any] = {}

    async def call_echo(number: int) -> None:
        answers[number] = text_of(await call(client, "there/echo", text=str(number)))

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(call_echo, number)
    assert answers == {number: str(number) for number in range(50)}
