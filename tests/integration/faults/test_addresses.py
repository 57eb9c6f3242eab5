"""Addresses that misbehave, through a whole crib: resets, half-open, odd answers, sessions that are over."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from integration.faults.harness import HEALTHY, Bench, beside, call, text_of, until_state
from integration.upstream.http.harness import (
    DISCOVERED,
    INITIALIZED,
    STREAM,
    Request,
    answer,
    chunk,
    official_server,
    raw_server,
    result,
)
from lab import eventually
from long_tests import takes_long
from toolcrib.model.json import JsonObject
from toolcrib.web.api_client.api_client import ApiClient

pytestmark = [pytest.mark.anyio, takes_long]

Answer = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]
TOOLS: JsonObject = {"tools": [{"name": "echo", "inputSchema": {"type": "object", "properties": {}}}]}
SECRET = "sekrit-in-a-header"


def server(on_call: Answer) -> Answer:
    """A modern server that answers calls as it is told here, and the rest as it should."""

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        match request.method:
            case "server/discover":
                writer.write(result(request, DISCOVERED))
            case "tools/list":
                writer.write(result(request, TOOLS))
            case "tools/call":
                await on_call(request, writer)
            case _:
                error = b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32601,"message":"No"}}' % request.message["id"]
                writer.write(answer(error))

    return script


async def reset(request: Request, writer: asyncio.StreamWriter) -> None:
    """End the connection without an answer."""
    writer.transport.abort()


async def cut(request: Request, writer: asyncio.StreamWriter) -> None:
    """End the connection in the middle of the answer."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{")
    await writer.drain()
    writer.transport.abort()


async def cut_stream(request: Request, writer: asyncio.StreamWriter) -> None:
    """End a stream before the answer."""
    writer.write(STREAM + chunk(b": soon\n\n"))
    await writer.drain()
    writer.transport.abort()


async def page(request: Request, writer: asyncio.StreamWriter) -> None:
    """Answer with a page for people."""
    writer.write(answer(b"<html>Welcome</html>", kind="text/html"))


async def nothing(request: Request, writer: asyncio.StreamWriter) -> None:
    """Answer with nothing."""
    writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")


async def garbage(request: Request, writer: asyncio.StreamWriter) -> None:
    """Answer with what is not HTTP."""
    writer.write(b"\x00\xff" * 100 + b"\r\n\r\n")


async def busy(request: Request, writer: asyncio.StreamWriter) -> None:
    """Have no time."""
    writer.write(answer(b"", "503 Service Unavailable", headers={"retry-after": "1000000000"}))


async def elsewhere(request: Request, writer: asyncio.StreamWriter) -> None:
    """Send us round in circles."""
    writer.write(answer(b"", "307 Temporary Redirect", headers={"location": "/mcp"}))


async def broken(request: Request, writer: asyncio.StreamWriter) -> None:
    """Fail, and repeat what only the server should know."""
    writer.write(answer(request.headers["x-api-key"].encode(), "500 Internal Server Error", "text/plain"))


async def flood(request: Request, writer: asyncio.StreamWriter) -> None:
    """Stream without end, and never answer."""
    writer.write(STREAM)
    while True:
        writer.write(chunk(b"data: " + b"x" * 65_000 + b"\n"))
        await writer.drain()


@pytest.mark.parametrize(
    "fault", [reset, cut, cut_stream, page, nothing, garbage, busy, elsewhere, broken, flood], ids=lambda f: f.__name__
)
async def test_a_call_to_a_broken_address_says_so_and_others_go_on(
    bench: Bench, fault: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    async with raw_server(server(fault)) as raw:
        definition: JsonObject = {"type": "http", "url": f"{raw.url}?key={SECRET}", "headers": {"X-Api-Key": SECRET}}
        async with bench.crib(bad=definition, healthy=HEALTHY) as (_, client):
            await until_state(client, "bad", "connected")
            answers: list[JsonObject] = []

            async def trouble() -> None:
                answers.append(await call(client, "bad/echo"))

            await beside(client, trouble)
            assert answers[0]["isError"]
            assert text_of(answers[0]).startswith("MCP error: ")
            assert raw.count("tools/call") == 1, "a call that may have been made is not made again"
            told = [answers, await client.servers(), await client.audit(), await client.tool_problems(), caplog.text]
            assert [each for each in told if SECRET in str(each)] == []


async def test_a_half_open_address_holds_up_only_its_own_call(bench: Bench) -> None:
    async def hold(request: Request, writer: asyncio.StreamWriter) -> None:
        pass

    async with raw_server(server(hold)) as raw:
        definition: JsonObject = {"type": "http", "url": raw.url, "timeout": 700}
        async with bench.crib(bad=definition, healthy=HEALTHY) as (_, client):
            await until_state(client, "bad", "connected")
            answers: list[JsonObject] = []

            async def trouble() -> None:
                answers.append(await call(client, "bad/echo"))

            await beside(client, trouble)
            assert answers[0]["isError"]
            await eventually(lambda: raw.left > 0)  # the request is taken back by closing its connection


async def test_a_session_that_the_server_forgot_is_opened_anew_and_the_call_made_once(bench: Bench) -> None:
    sessions: list[str] = []
    forgotten: set[str] = set()
    calls: list[str] = []

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        session = request.headers.get("mcp-session-id", "")
        if request.verb != "POST":
            writer.write(answer(b"", "405 Method Not Allowed"))
        elif request.method == "server/discover":
            writer.write(
                answer(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"No"}}', "400 Bad Request")
            )
        elif request.method == "initialize":
            sessions.append(f"session-{len(sessions)}")
            writer.write(result(request, INITIALIZED, {"mcp-session-id": sessions[-1]}))
        elif session in forgotten:
            writer.write(answer(b"", "404 Not Found"))
        elif "id" not in request.message:
            writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
        elif request.method == "tools/list":
            writer.write(result(request, TOOLS))
        else:
            calls.append(session)
            writer.write(result(request, {"content": []}))

    async with raw_server(script) as raw, bench.crib(old={"type": "http", "url": raw.url}) as (_, client):
        await until_state(client, "old", "connected")
        for number in range(3):
            assert not (await call(client, "old/echo"))["isError"]
            forgotten.update(sessions)
            assert not (await call(client, "old/echo"))["isError"]
            assert len(sessions) == number + 2
        assert calls == ["session-0", "session-1", "session-1", "session-2", "session-2", "session-3"]


async def test_calls_side_by_side_have_each_their_own_answer(bench: Bench) -> None:
    async with official_server() as (url, _), bench.crib(there={"type": "http", "url": url}) as (_, client):
        await until_state(client, "there", "connected")
        assert text_of(await call(client, "there/echo", text="first")) == "first"
        await _many(client)


async def _many(client: ApiClient) -> None:
    """Fifty calls at once, each with an answer of its own."""
    answers: dict[int, Any] = {}

    async def one(number: int) -> None:
        answers[number] = text_of(await call(client, "there/echo", text=str(number)))

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(one, number)
    assert answers == {number: str(number) for number in range(50)}
