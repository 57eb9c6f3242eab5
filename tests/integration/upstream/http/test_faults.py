"""HTTP faults of a server fail the call that meets them, and nothing else."""

import asyncio
import gzip

import anyio
import orjson
import pytest

from integration.upstream.http.harness import (
    DISCOVERED,
    END,
    LOOPS,
    STREAM,
    Request,
    call,
    chunk,
    http_response,
    open_connection,
    raw_server,
    result_message,
    result_response,
    sse_event,
)
from lab import cancelled_once, eventually
from loop_turns import counted_turns
from toolcrib.base.processes.process import ServerFailed
from toolcrib.model.errors import ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.model.sources import ProtocolError
from toolcrib.upstream.http import responses
from toolcrib.upstream.http.client import MOST_CONNECTIONS
from toolcrib.upstream.http.failures import HttpRefused
from toolcrib.upstream.http.http_connection import HEAD_LIMIT

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", LOOPS)]

MEGABYTE = b"x" * 1024 * 1024
FLOOD = b'data: {"jsonrpc":"2.0","method":"notifications/message"}\n\n'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
HTML = "text/html; charset=utf-8"


async def misbehave(request: Request, writer: asyncio.StreamWriter) -> None:
    """Answer as the name of the tool requests."""
    if request.method == "server/discover":
        writer.write(result_response(request, DISCOVERED))
    elif request.tool in ANSWERS:
        writer.write(ANSWERS[request.tool])
        if request.tool.endswith("closes"):
            writer.close()
    elif request.tool in ENDLESS:
        writer.write(ENDLESS[request.tool])
        for _ in range(40):
            writer.write(chunk(MEGABYTE))
            await writer.drain()
    elif request.tool == "floods":
        writer.write(STREAM + chunk(FLOOD * 20_000) + sse_event(result_message(request, {"content": []})) + END)
    elif request.tool == "floods on":
        writer.write(STREAM)
        while not writer.is_closing():
            writer.write(chunk(FLOOD * 1_000))
            await writer.drain()
    else:
        await answer_strangely(request, writer)


async def answer_strangely(request: Request, writer: asyncio.StreamWriter) -> None:
    """Send an unusual but valid answer."""
    nothing = result_response(request, {"content": []})
    match request.tool:
        case "resets":
            writer.transport.abort()
        case "drips":
            for byte in nothing:
                writer.write(bytes([byte]))
                await writer.drain()
        case "goes on":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + nothing)
        case "old":
            head = b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n"
            writer.write(head + orjson.dumps(result_message(request, {"content": []})))
            writer.close()
        case "other id":
            writer.write(http_response(orjson.dumps({"jsonrpc": "2.0", "id": 10_000, "result": {}})))
        case "talks on":
            writer.write(nothing + http_response(b"{}"))
        case _:
            writer.write(result_response(request, {"content": [{"text": "echo"}]}))


ENDLESS = {
    "never ends": HEAD + b"transfer-encoding: chunked\r\n\r\n",
    "huge event": STREAM + chunk(b"data: "),
}

ANSWERS = {
    "closes": b"",
    "half closes": HEAD + b"content-length: 1000\r\n\r\n{",
    "chunk closes": HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\n{",
    "stream closes": STREAM + sse_event(None, None, ": hello\n"),
    "bad chunk": HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    "no http": b"SSH-2.0-OpenSSH_9.9\r\n",
    "two lengths": HEAD + b"content-length: 5\r\ncontent-length: 6\r\n\r\n{    }",
    "upgrades": b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
    "huge head": b"HTTP/1.1 200 OK\r\nx: " + b"y" * (HEAD_LIMIT + 10),
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * HEAD_LIMIT,
    "page": http_response(b"<html>Welcome!</html>", kind=HTML),
    "empty": http_response(b""),
    "nothing": b"HTTP/1.1 204 No Content\r\n\r\n",
    "accepts": http_response(b"", "202 Accepted"),
    "not json": http_response(b"{"),
    "array": http_response(b"[1]"),
    "packed": http_response(gzip.compress(b"{}"), headers={"content-encoding": "gzip"}),
    "garbled event": STREAM + chunk(b"data: {\n\n"),
    "silent": b"",
    "silent stream": STREAM,
    "redirects": http_response(b"", "307 Temporary Redirect", headers={"location": "/mcp/"}),
    "busy": http_response(b"slow down", "429 Too Many Requests", "text/plain", {"retry-after": "1000000000"}),
    "away": http_response(b"<html>", "503 Service Unavailable", HTML, {"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}),
    "wrong": http_response(b'{"detail": "no such thing"}', "404 Not Found"),
    "error": http_response(
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"No","data":1}}', "400 Bad Request"
    ),
}

ERRORS = {
    "closes": ("server.ended", "closed the connection before it responded"),
    "resets": ("server.ended", "the connection before it responded"),
    "half closes": ("server.ended", "closed the connection during its response"),
    "chunk closes": ("server.ended", "during its response"),
    "stream closes": ("server.ended", "during its response"),
    "bad chunk": ("server.reply_invalid", "an invalid HTTP response"),
    "no http": ("server.reply_invalid", "an invalid HTTP response"),
    "two lengths": ("server.reply_invalid", "an invalid HTTP response"),
    "upgrades": ("server.reply_invalid", "another protocol"),
    "huge head": ("server.reply_invalid", "headers of more than"),
    "many headers": ("server.reply_invalid", "headers of more than"),
    "never ends": ("server.reply_invalid", "too large"),
    "huge event": ("server.reply_invalid", "too large"),
    "page": ("server.reply_invalid", "answered with text/html instead of JSON"),
    "empty": ("server.reply_invalid", "HTTP 200 and nothing else"),
    "nothing": ("server.reply_invalid", "HTTP 204 and nothing else"),
    "accepts": ("server.reply_invalid", "HTTP 202 and nothing else"),
    "not json": ("server.reply_invalid", "cannot be read"),
    "array": ("server.reply_invalid", "cannot be read"),
    "packed": ("server.reply_invalid", "packed"),
    "garbled event": ("server.reply_invalid", "cannot be read"),
    "other id": ("server.reply_invalid", "something else than what it was asked"),
    "redirects": ("server.http_status", "redirects to /mcp/ (HTTP 307), which is not followed"),
    "busy": ("server.http_status", "answered with HTTP 429: slow down"),
    "away": ("server.http_status", "answered with HTTP 503."),
    "wrong": ("server.http_status", "answered with HTTP 404: no such thing"),
    "silent": ("server.timeout", "sent nothing for 0.5 seconds"),
    "silent stream": ("server.timeout", "sent nothing for 0.5 seconds"),
}


@pytest.mark.parametrize("fault", ERRORS)
async def test_broken_answer_fails_only_its_own_call(fault: str) -> None:
    code, words = ERRORS[fault]
    with anyio.fail_after(20):
        async with (
            raw_server(misbehave) as raw,
            open_connection(raw.url, idle_wait=0.5 if fault.startswith("silent") else 20) as (connection, _),
            anyio.create_task_group() as tasks,
        ):
            for _ in range(5):
                tasks.start_soon(call, connection, "echo")
            with pytest.raises(ServerFailed) as caught:
                await call(connection, fault)
            assert caught.value.code == code
            assert caught.value.message.startswith('Server "lab" ')
            assert words in caught.value.message
            assert ("web page" in (caught.value.hint or "")) == (fault == "page")
            assert await call(connection, "echo") == {"content": [{"text": "echo"}]}
            assert connection.failure is None
    assert sum(request.method == "tools/call" and request.tool == fault for request in raw.requests) == 1


@pytest.mark.parametrize("tool", ["drips", "goes on", "old", "talks on"])
async def test_unusual_but_valid_answers_are_accepted(tool: str) -> None:
    with anyio.fail_after(20):
        async with raw_server(misbehave) as raw, open_connection(raw.url) as (connection, _):
            for _ in range(3):
                assert await call(connection, tool) == {"content": []}
            assert await call(connection, "echo") == {"content": [{"text": "echo"}]}


async def test_protocol_error_keeps_its_parts_with_any_status() -> None:
    with anyio.fail_after(20):
        async with raw_server(misbehave) as raw, open_connection(raw.url) as (connection, _):
            with pytest.raises(ProtocolError) as caught:
                await call(connection, "error")
    assert (caught.value.code, caught.value.message, caught.value.data) == (-32602, "No", 1)


@pytest.mark.parametrize(("tool", "seconds"), [("busy", 300.0), ("away", 0.0), ("wrong", None)])
async def test_retry_after_is_bounded(tool: str, seconds: float | None) -> None:
    with anyio.fail_after(20):
        async with raw_server(misbehave) as raw, open_connection(raw.url) as (connection, _):
            with pytest.raises(HttpRefused) as caught:
                await call(connection, tool)
    assert caught.value.retry_after == seconds


async def test_cancelled_call_closes_only_its_own_connection() -> None:
    with anyio.fail_after(20):
        async with raw_server(misbehave) as raw, open_connection(raw.url) as (connection, _):
            await call(connection, "echo")
            await cancelled_once(lambda: raw.count("tools/call") == 2, lambda: call(connection, "silent"))
            await eventually(lambda: raw.closed == 1)
            await call(connection, "echo")
            assert raw.connections == 2


async def test_connections_are_reused() -> None:
    with anyio.fail_after(20):
        async with raw_server(misbehave) as raw, open_connection(raw.url) as (connection, _):
            for _ in range(20):
                await call(connection, "echo")
            assert raw.connections == 1


async def _fickle(request: Request, writer: asyncio.StreamWriter) -> None:
    """Answer one request per connection; read the second one and close."""
    if getattr(writer, "was_used", False):
        writer.close()
        return
    setattr(writer, "was_used", True)  # noqa: B010  # the test's own mark
    empty: JsonObject = {"tools": [], "content": []}
    value = DISCOVERED if request.method == "server/discover" else empty
    writer.write(result_response(request, value))


async def test_idempotent_request_is_repeated_once_on_a_new_connection() -> None:
    with anyio.fail_after(20):
        async with raw_server(_fickle) as raw, open_connection(raw.url) as (connection, _):
            assert (await connection.call("tools/list", {}))["tools"] == []
            assert raw.count("tools/list") == 2


async def test_tool_call_is_never_repeated() -> None:
    with anyio.fail_after(20):
        async with raw_server(_fickle) as raw, open_connection(raw.url) as (connection, _):
            with pytest.raises(ServerFailed, match="closed the connection before it responded"):
                await call(connection, "echo")
            assert raw.count("tools/call") == 1
            assert (await call(connection, "echo"))["content"] == []


async def test_server_that_does_not_read_a_large_request_times_out() -> None:
    async def stop_reading(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(result_response(request, DISCOVERED))
        await writer.drain()
        await anyio.sleep_forever()

    with anyio.fail_after(20):
        async with raw_server(stop_reading) as raw, open_connection(raw.url, idle_wait=0.5) as (connection, _):
            with pytest.raises(ServerFailed, match="sent nothing for"):
                await call(connection, "echo", text="x" * 30_000_000)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:1/mcp", "cannot be reached: connection refused by 127.0.0.1:1."),
        ("http://nowhere.localhost/mcp", "cannot be reached"),
    ],
)
async def test_unreachable_server_is_reported(url: str, words: str) -> None:
    with anyio.fail_after(20), pytest.raises(ServerFailed) as caught:
        async with open_connection(url):
            raise AssertionError("it was reached")
    assert caught.value.code == "server.unreachable"
    assert words in caught.value.message


async def test_unanswered_handshake_times_out() -> None:
    async def never_answer(request: Request, writer: asyncio.StreamWriter) -> None:
        pass

    with anyio.fail_after(20):
        async with raw_server(never_answer) as raw:
            with pytest.raises(ToolcribError) as caught:
                async with open_connection(raw.url, connect_wait=0.5):
                    raise AssertionError("it did not answer")
            assert caught.value.code == "server.timeout"
            await eventually(lambda: raw.closed == raw.connections)


async def test_calls_beyond_the_connection_limit_wait() -> None:
    with anyio.fail_after(30):
        async with raw_server(misbehave) as raw, open_connection(raw.url) as (connection, _):
            async with anyio.create_task_group() as tasks:
                for _ in range(400):
                    tasks.start_soon(call, connection, "echo")
            assert raw.connections <= MOST_CONNECTIONS


async def test_message_flood_takes_bounded_work_per_loop_turn() -> None:
    async with raw_server(misbehave) as raw, open_connection(raw.url) as (connection, _), counted_turns() as turns:
        connection.on_notification = turns.count
        with anyio.fail_after(60):
            await call(connection, "floods")
    assert turns.total == 20_000, "all messages arrive before the result"
    assert turns.most < 2_000, "one chunk of a socket has several thousand"


async def test_messages_beyond_the_limit_fail_their_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "MESSAGES_LIMIT", 5_000)
    async with raw_server(misbehave) as raw, open_connection(raw.url) as (connection, _):
        with anyio.fail_after(60), pytest.raises(ServerFailed, match="more than 5,000 messages") as caught:
            await call(connection, "floods on")
        assert caught.value.code == "server.message_limit"
        assert await call(connection, "echo")


async def test_stream_beyond_the_size_limit_fails_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "STREAM_LIMIT", 100_000)
    async with raw_server(misbehave) as raw, open_connection(raw.url) as (connection, _):
        with anyio.fail_after(60), pytest.raises(ServerFailed, match="more than 100,000 bytes") as caught:
            await call(connection, "floods on")
    assert caught.value.code == "server.message_limit"
