"""Legacy HTTP servers that lose MCP sessions, break streams and resume them."""

import asyncio
import time
from dataclasses import dataclass, field

import anyio
import orjson
import pytest

from integration.upstream.http.harness import (
    DISCOVERED,
    END,
    INITIALIZED,
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
from toolcrib.base.processes.process import ServerFailed
from toolcrib.model.errors import ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.model.protocol import Era
from toolcrib.model.sources import ProtocolError
from toolcrib.upstream.http.failures import HttpRefused
from toolcrib.upstream.http.streamable import CLOSE_SECONDS

pytestmark = pytest.mark.anyio

NOT_ALLOWED = http_response(b"", "405 Method Not Allowed")
GONE = http_response(
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Session not found"}}', "404 Not Found"
)
NO_SESSION = http_response(
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}',
    "400 Bad Request",
)
CHANGED: JsonObject = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
LOGGED: JsonObject = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "working"}}


@dataclass
class LegacyServer:
    """A legacy server whose fields control its answers."""

    session: str | None = "s-1"
    gone: bytes | None = None
    resumes: bool = True
    stream: list[bytes] = field(default_factory=list[bytes])
    waiting: Request | None = None
    posted: list[JsonObject] = field(default_factory=list[JsonObject])

    async def __call__(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if request.verb == "POST":
            writer.write(self.post(request))
            if request.method == "tools/call" and request.tool == "breaks":
                await writer.drain()
                writer.close()
        elif request.verb == "DELETE":
            writer.write(http_response(b""))
        else:
            writer.write(self.get(request))

    def get(self, request: Request) -> bytes:
        """Return the standing stream, or the rest of a broken one."""
        if self.waiting is not None and request.headers.get("last-event-id") == "e-1":
            if not self.resumes:
                return NOT_ALLOWED
            return STREAM + sse_event(result_message(self.waiting, {"content": [{"text": "late"}]}), "e-2") + END
        return self.stream.pop(0) if self.stream else NOT_ALLOWED

    def post(self, request: Request) -> bytes:
        """Return the response to a message."""
        method = request.method
        if method == "server/discover":
            return NO_SESSION
        if method == "initialize":
            headers = {"mcp-session-id": self.session} if self.session else None
            return result_response(request, INITIALIZED, headers)
        if self.gone is not None:
            return self.gone
        if "id" not in request.message or "result" in request.message or "error" in request.message:
            self.posted.append(request.message)
            return http_response(b"", "202 Accepted")
        return self.call(request)

    def call(self, request: Request) -> bytes:
        """Return the response to a call."""
        if request.tool == "breaks":
            self.waiting = request
            return STREAM + sse_event(None, "e-1", "retry: 1\n") + sse_event(LOGGED)
        if request.tool == "asks":
            ask = {"jsonrpc": "2.0", "id": "q", "method": "roots/list"}
            return (
                STREAM
                + sse_event(ask)
                + sse_event(CHANGED)
                + sse_event(LOGGED)
                + sse_event(result_message(request, {"content": []}))
                + END
            )
        if request.tool == "hangs":
            return b""
        return result_response(request, {"content": [{"text": "echo"}]})


async def test_messages_after_the_handshake_carry_session_and_version() -> None:
    with anyio.fail_after(20):
        async with raw_server(LegacyServer()) as raw:
            async with open_connection(raw.url) as (connection, introduction):
                assert introduction.era == "legacy"
                await call(connection, "echo", "legacy")
                await eventually(lambda: raw.count("GET") == 1)
            assert raw.count("DELETE") == 1
    after = [request for request in raw.requests if request.method not in ("server/discover", "initialize")]
    assert {request.method for request in after} == {"notifications/initialized", "tools/call", "GET", "DELETE"}
    assert {request.headers.get("mcp-session-id") for request in after} == {"s-1"}
    assert {request.headers.get("mcp-protocol-version") for request in after} == {"2025-11-25"}


async def test_unanswered_session_delete_does_not_block_closing() -> None:
    class UnresponsiveDelete(LegacyServer):
        async def __call__(self, request: Request, writer: asyncio.StreamWriter) -> None:
            if request.verb != "DELETE":
                await super().__call__(request, writer)

    with anyio.fail_after(20):
        async with raw_server(UnresponsiveDelete()) as raw:
            with anyio.fail_after(CLOSE_SECONDS + 3), pytest.raises(KeyError):
                async with open_connection(raw.url):
                    raise KeyError("as it is, not in a group")
            assert raw.count("DELETE") == 1
            await eventually(lambda: raw.closed == raw.connections)


async def test_server_without_sessions_gets_no_delete() -> None:
    with anyio.fail_after(20):
        async with (
            raw_server(LegacyServer(session=None)) as raw,
            open_connection(raw.url, era="legacy") as (connection, _),
        ):
            await call(connection, "echo", "legacy")
    assert raw.count("DELETE") == 0
    assert raw.count("server/discover") == 0


@pytest.mark.parametrize("gone", [GONE, NO_SESSION, http_response(b"", "404 Not Found")])
async def test_lost_session_ends_the_connection_and_fails_pending_calls(gone: bytes) -> None:
    server = LegacyServer()
    pending_errors: list[str] = []

    with anyio.fail_after(20):
        async with (
            raw_server(server) as raw,
            open_connection(raw.url) as (connection, _),
            anyio.create_task_group() as tasks,
        ):

            async def pending_call() -> None:
                with pytest.raises(ServerFailed) as caught:
                    await call(connection, "hangs", "legacy")
                pending_errors.append(caught.value.code)

            tasks.start_soon(pending_call)
            await eventually(lambda: raw.count("tools/call") == 1)
            server.gone = gone
            with pytest.raises(ServerFailed) as caught:
                await call(connection, "echo", "legacy")
            assert caught.value.code == "server.session_lost"
            assert (await connection.until_ended()).code == "server.session_lost"
            with pytest.raises(ServerFailed):
                await call(connection, "echo", "legacy")
    assert pending_errors == ["server.ended"]
    assert raw.count("DELETE") == 0


async def test_broken_stream_is_resumed_after_its_last_event() -> None:
    received: list[str] = []
    with anyio.fail_after(20):
        async with raw_server(LegacyServer()) as raw, open_connection(raw.url) as (connection, _):
            answer = await connection.call(
                "tools/call", {"name": "breaks"}, on_message=lambda method, params: received.append(method)
            )
            assert answer == {"content": [{"text": "late"}]}
    assert received == ["notifications/message"]
    assert raw.count("tools/call") == 1


async def test_stream_that_cannot_be_resumed_fails_only_its_call() -> None:
    with anyio.fail_after(20):
        async with raw_server(LegacyServer(resumes=False)) as raw, open_connection(raw.url) as (connection, _):
            with pytest.raises(ServerFailed, match="did not resume it") as caught:
                await call(connection, "breaks", "legacy")
            assert caught.value.code == "server.ended"
            assert (await call(connection, "echo", "legacy"))["content"]


async def test_messages_on_the_stream_of_a_call_reach_their_handlers() -> None:
    server = LegacyServer()
    own: list[str] = []
    common: list[str] = []
    with anyio.fail_after(20):
        async with raw_server(server) as raw, open_connection(raw.url) as (connection, _):
            connection.on_notification = lambda method, params: common.append(method)
            connection.on_request = lambda request_id, method, params: connection.answer(request_id, {"roots": []})
            await connection.call("tools/call", {"name": "asks"}, on_message=lambda method, params: own.append(method))
            await eventually(lambda: {"jsonrpc": "2.0", "id": "q", "result": {"roots": []}} in server.posted)
    assert own == ["notifications/message"]
    assert common == ["notifications/tools/list_changed"]


async def test_standing_stream_is_reopened_after_its_last_event() -> None:
    received: list[str] = []
    first = STREAM + sse_event(CHANGED, "n-1", "retry: 1\n") + END
    second = STREAM + sse_event(CHANGED, "n-2")
    with anyio.fail_after(20):
        async with raw_server(LegacyServer(stream=[first, second])) as raw, open_connection(raw.url) as (connection, _):
            connection.on_notification = lambda method, params: received.append(method)
            await eventually(lambda: raw.count("GET") == 2)
            await eventually(lambda: len(received) >= 1)
    assert [request.headers.get("last-event-id") for request in raw.requests if request.verb == "GET"] == [None, "n-1"]


async def test_refused_standing_stream_is_not_requested_again() -> None:
    with anyio.fail_after(20):
        async with raw_server(LegacyServer()) as raw, open_connection(raw.url) as (connection, _):
            await eventually(lambda: raw.count("GET") == 1)
            await anyio.sleep(1.2)
            await call(connection, "echo", "legacy")
    assert raw.count("GET") == 1


async def test_standing_stream_is_retried_after_the_requested_delay() -> None:
    requested_at: list[float] = []

    class BusyServer(LegacyServer):
        async def __call__(self, request: Request, writer: asyncio.StreamWriter) -> None:
            if request.verb != "GET":
                await super().__call__(request, writer)
                return
            requested_at.append(time.monotonic())
            writer.write(http_response(b"", "503 Service Unavailable", headers={"retry-after": "3"}))

    with anyio.fail_after(20):
        async with raw_server(BusyServer()) as raw, open_connection(raw.url):
            await eventually(lambda: len(requested_at) == 2)
    assert requested_at[1] - requested_at[0] >= 3


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
@pytest.mark.parametrize("era", [None, "legacy"])
async def test_busy_server_is_not_retried_during_the_handshake(status: str, era: Era | None) -> None:
    async def busy(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(http_response(b"", status, headers={"retry-after": "30"}))

    with anyio.fail_after(20):
        async with raw_server(busy) as raw:
            with pytest.raises(HttpRefused) as caught:
                async with open_connection(raw.url, era=era):
                    raise AssertionError("it was used")
    assert (len(raw.requests), caught.value.retry_after) == (1, 30)


async def test_cancellation_is_sent_as_its_own_message() -> None:
    server = LegacyServer()
    with anyio.fail_after(20):
        async with raw_server(server) as raw, open_connection(raw.url) as (connection, _):
            await cancelled_once(lambda: raw.count("tools/call") == 1, lambda: call(connection, "hangs", "legacy"))
            hung = next(request.message["id"] for request in raw.requests if request.method == "tools/call")
            await eventually(
                lambda: any(message.get("params", {}).get("requestId") == hung for message in server.posted)
            )
            assert server.posted[-1]["method"] == "notifications/cancelled"


@pytest.mark.parametrize("era", [None, "modern", "legacy"])
async def test_wrong_remembered_era_is_corrected(era: Era | None) -> None:
    async def modern(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.method == "server/discover":
            writer.write(result_response(request, DISCOVERED))
        else:
            body = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"Unsupported"}}'
            writer.write(http_response(body, "400 Bad Request"))

    with anyio.fail_after(20):
        async with raw_server(modern) as raw, open_connection(raw.url, era=era) as (_, introduction):
            assert introduction.era == "modern"
        async with raw_server(LegacyServer()) as raw, open_connection(raw.url, era=era) as (_, introduction):
            assert introduction.era == "legacy"


@pytest.mark.parametrize(
    ("method", "supported", "handshake_result"),
    [
        ("server/discover", ["2030-01-01", "2026-07-28"], DISCOVERED),
        ("initialize", ["2025-03-26", "2024-11-05", 7], {**INITIALIZED, "protocolVersion": "2025-03-26"}),
    ],
)
async def test_version_refusal_is_retried_with_a_supported_version(
    method: str, supported: list[object], handshake_result: JsonObject
) -> None:
    refused = False

    async def picky(request: Request, writer: asyncio.StreamWriter) -> None:
        nonlocal refused
        if request.method == method and refused:
            writer.write(result_response(request, handshake_result))
        elif request.method == method:
            refused = True
            error = {"code": -32022, "message": "Unsupported", "data": {"supported": supported}}
            body = orjson.dumps({"jsonrpc": "2.0", "id": request.message["id"], "error": error})
            writer.write(http_response(body, "400 Bad Request"))
        else:
            writer.write(
                NOT_ALLOWED if "id" in request.message or request.verb == "GET" else http_response(b"", "202 Accepted")
            )

    with anyio.fail_after(20):
        async with raw_server(picky) as raw, open_connection(raw.url) as (_, introduction):
            pass
    assert introduction.version == ("2026-07-28" if method == "server/discover" else "2025-03-26")
    requests = [request for request in raw.requests if request.method == method]
    assert len(requests) == 2
    if method == "initialize":
        assert [request.message["params"]["protocolVersion"] for request in requests] == ["2025-11-25", "2025-03-26"]
    else:
        assert "initialize" not in {request.method for request in raw.requests}


async def test_server_that_keeps_refusing_versions_is_not_retried_forever() -> None:
    async def always_refuse(request: Request, writer: asyncio.StreamWriter) -> None:
        error = {"code": -32022, "message": "No", "data": {"supported": ["2026-07-28", "2025-11-25"]}}
        writer.write(http_response(orjson.dumps({"jsonrpc": "2.0", "id": request.message["id"], "error": error})))

    with anyio.fail_after(20):
        async with raw_server(always_refuse) as raw:
            with pytest.raises(ToolcribError, match="supports no known version"):
                async with open_connection(raw.url):
                    raise AssertionError("it refuses everything")
    assert [request.method for request in raw.requests] == ["server/discover"] * 2 + ["initialize"] * 2


@pytest.mark.parametrize(
    ("response", "code", "words"),
    [
        (http_response(b"<html>", "404 Not Found", "text/html"), "server.http_status", "answered with HTTP 404"),
        (http_response(b"busy", "503 Service Unavailable", "text/plain"), "server.http_status", "HTTP 503: busy"),
        (http_response(b"<html>", kind="text/html"), "server.reply_invalid", "instead of JSON"),
        (
            http_response(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"What?"}}'),
            "server.protocol",
            "error -32601, What?",
        ),
        (
            http_response(b"", "301 Moved Permanently", headers={"location": "/x"}),
            "server.http_status",
            "redirects to /x",
        ),
    ],
)
async def test_answer_of_another_kind_of_server_is_an_error(response: bytes, code: str, words: str) -> None:
    async def no_server(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(response)

    with anyio.fail_after(20):
        async with raw_server(no_server) as raw:
            with pytest.raises(ToolcribError) as caught:
                async with open_connection(raw.url):
                    raise AssertionError("it is none")
    assert caught.value.code == code
    assert words in caught.value.message
    assert isinstance(caught.value, HttpRefused) == (code == "server.http_status")


async def test_endpoint_on_another_origin_is_refused() -> None:
    async def sse(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + chunk(b"event: endpoint\ndata: http://127.0.0.1:1/steal\n\n"))

    with anyio.fail_after(20):
        async with raw_server(sse) as raw:
            with pytest.raises(ServerFailed, match="another address than its own"):
                async with open_connection(raw.url, transport="sse"):
                    raise AssertionError("it was used")


async def test_ended_sse_stream_fails_pending_calls() -> None:
    close = anyio.Event()

    async def sse(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.verb == "GET":
            writer.write(STREAM + chunk(b"event: endpoint\ndata: /post?id=1\n\n"))
            streams.append(writer)
        elif request.method == "initialize":
            writer.write(http_response(b"", "202 Accepted"))
            streams[0].write(sse_event(result_message(request, INITIALIZED)))
        else:
            writer.write(http_response(b"", "202 Accepted"))
            if request.method == "tools/call":
                streams[0].write(END)
                close.set()

    streams: list[asyncio.StreamWriter] = []
    with anyio.fail_after(20):
        async with raw_server(sse) as raw, open_connection(raw.url, transport="sse") as (connection, _):
            with pytest.raises(ServerFailed, match="ended its stream"):
                await call(connection, "echo", "legacy")
            assert close.is_set()
            assert connection.failure is not None
            assert raw.requests[1].path == "/post?id=1"


async def test_protocol_error_is_raised_from_a_stream_and_from_json() -> None:
    class FailingServer(LegacyServer):
        def call(self, request: Request) -> bytes:
            error = {"jsonrpc": "2.0", "id": request.message["id"], "error": {"code": -32042, "message": "Sign in"}}
            return STREAM + sse_event(error) + END if request.tool == "stream" else http_response(orjson.dumps(error))

    with anyio.fail_after(20):
        async with raw_server(FailingServer()) as raw, open_connection(raw.url) as (connection, _):
            for tool in ("stream", "json"):
                with pytest.raises(ProtocolError) as caught:
                    await call(connection, tool, "legacy")
                assert caught.value.code == -32042
