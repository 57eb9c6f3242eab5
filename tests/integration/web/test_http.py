"""The HTTP server with slow, oversized, malformed and disconnecting clients."""

import sys
from dataclasses import replace

import anyio
import orjson
import pytest
from starlette.types import Message, Receive, Scope, Send

from integration.web.wire import (
    connect,
    exchange,
    raw_connection,
    read_to_end,
    read_until,
    serve,
    status_of,
    statuses_of,
)
from toolcrib.gate.principals import OWNER_KEY
from toolcrib.web.limits import CONNECTION, WireLimits

pytestmark = pytest.mark.anyio

QUICK = WireLimits(head_seconds=0.2, request_seconds=0.4, stuck_seconds=0.3)


@pytest.fixture(
    params=[True, False] if sys.platform != "win32" else [False], ids=lambda fast: "uvloop" if fast else "asyncio"
)
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Both event loops, which end connections differently."""
    return "asyncio", {"use_uvloop": request.param}


async def read_all(receive: Receive) -> bytes | None:
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message["body"]
        if not message.get("more_body"):
            return body


async def respond(send: Send, body: bytes) -> None:
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Respond with the path, the header names and the body of the request."""
    body = await read_all(receive)
    if body is not None:
        names = sorted(name.decode() for name, _ in scope["headers"])
        await respond(send, orjson.dumps({"path": scope["path"], "headers": names, "body": body.decode()}))


def body_of(answer: bytes) -> dict[str, object]:
    return orjson.loads(answer.split(b"\r\n\r\n", 1)[1])


async def test_connection_serves_several_requests() -> None:
    async with serve(echo) as port, connect(port) as stream:
        for number in range(3):
            await stream.send(b"GET /%d HTTP/1.1\r\nhost: x\r\n\r\n" % number)
            assert b'"path":"/%d"' % number in await read_until(stream, b"}")


async def test_unfinished_head_is_answered_408() -> None:
    async with serve(echo, QUICK) as port:
        answer = await exchange(port, b"GET / HTTP/1.1\r\nhost: x\r\nx-slow: ")
    assert status_of(answer) == 408
    assert body_of(answer)["code"] == "request.too_slow"
    assert b"application/problem+json" in answer


async def test_slowly_sent_headers_do_not_extend_the_timeout() -> None:
    async with serve(echo, QUICK) as port, connect(port) as stream:
        await stream.send(b"GET / HTTP/1.1\r\n")
        async with anyio.create_task_group() as tasks:

            async def drip() -> None:
                while True:
                    await stream.send(b"x-a: b\r\n")
                    await anyio.sleep(0.05)

            tasks.start_soon(drip)
            assert status_of(await read_until(stream, b"}")) == 408
            tasks.cancel_scope.cancel()


async def test_head_timeout_applies_to_a_reused_connection() -> None:
    async with serve(echo, QUICK) as port, connect(port) as stream:
        await stream.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await read_until(stream, b"}")
        await stream.send(b"GET / HTTP")
        assert status_of(await read_to_end(stream)) == 408


async def test_empty_lines_do_not_keep_a_connection_open() -> None:
    async with serve(echo, QUICK) as port, connect(port) as stream:
        await stream.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await read_until(stream, b"}")
        await stream.send(b"\r\n")
        assert status_of(await read_to_end(stream)) == 408


async def test_silent_connection_is_closed_without_a_response() -> None:
    async with serve(echo, QUICK) as port:
        assert await exchange(port, b"") == b""


async def test_unfinished_body_is_answered_408() -> None:
    async with serve(echo, QUICK) as port:
        answer = await exchange(port, b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf")
        chunked = await exchange(port, b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n")
    assert status_of(answer) == status_of(chunked) == 408


async def test_slow_handler_does_not_time_out_the_request() -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await anyio.sleep(0.6)
        await respond(send, b"%d" % len(await read_all(receive) or b""))

    async with serve(slow, QUICK) as port, connect(port) as stream:
        await stream.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n" + b"a" * 1_000_000)
        answer = await read_until(stream, b"\r\n\r\n1000000")
    assert status_of(answer) == 200


async def test_oversized_target_is_answered_414() -> None:
    async with serve(echo) as port:
        fits = await exchange(port, b"GET /%b HTTP/1.1\r\nconnection: close\r\n\r\n" % (b"a" * 8191))
        answer = await exchange(port, b"GET /%b HTTP/1.1\r\n\r\n" % (b"a" * 8192))
        endless = await exchange(port, b"GET /" + b"a" * 500_000)
    assert status_of(fits) == 200
    assert status_of(answer) == status_of(endless) == 414
    assert body_of(answer)["code"] == "request.target_too_long"


@pytest.mark.parametrize(
    "head",
    [
        b"x-a: b\r\n" * 101 + b"\r\n",
        b"x-a: " + b"b" * 66_000 + b"\r\n\r\n",
        b"x-a: " + b"b" * 500_000,
        b"x-%b: b\r\n\r\n" % (b"a" * 66_000),
        (b"x-a: " + b"b" * 1000 + b"\r\n") * 70,
    ],
    ids=["count", "one value", "endless value", "one name", "sum"],
)
async def test_oversized_head_is_answered_431(head: bytes) -> None:
    async with serve(echo) as port:
        answer = await exchange(port, b"GET / HTTP/1.1\r\n" + head)
    assert status_of(answer) == 431
    assert body_of(answer)["code"] == "request.headers_too_large"


async def test_hundred_headers_and_sixty_kilobytes_are_accepted() -> None:
    async with serve(echo) as port:
        many = await exchange(port, b"GET / HTTP/1.1\r\nconnection: close\r\n" + b"x-a: b\r\n" * 99 + b"\r\n")
        large = await exchange(port, b"GET / HTTP/1.1\r\nconnection: close\r\nx-a: " + b"b" * 60_000 + b"\r\n\r\n")
    assert status_of(many) == status_of(large) == 200


async def test_head_sent_byte_by_byte_is_read() -> None:
    async with serve(echo) as port, connect(port) as stream:
        for byte in b"POST /p%20q HTTP/1.1\r\nhost: x\r\nx-empty:\r\nx-a: b\r\ncontent-length: 2\r\n\r\nhi":
            await stream.send(bytes([byte]))
        answer = await read_until(stream, b"}")
    assert body_of(answer) == {"path": "/p q", "headers": ["content-length", "host", "x-a", "x-empty"], "body": "hi"}


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"BREW / HTTP/1.1\r\n\r\n",
        b"GET  HTTP/1.1\r\n\r\n",
        b"GET http://elsewhere.example/ HTTP/1.1\r\nhost: x\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n",
        b"CONNECT elsewhere.example:443 HTTP/1.1\r\nhost: x\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabc",
        b"POST / HTTP/1.1\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\nabc",
        b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nx-a: b\x00c\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
    ],
)
async def test_invalid_http_is_answered_400(request_bytes: bytes) -> None:
    async with serve(echo, QUICK) as port:
        answer = await exchange(port, request_bytes)
        assert status_of(answer) == 400
        assert body_of(answer)["code"] == "request.malformed"
        after = await exchange(port, b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n")
        assert status_of(after) == 200


async def test_trailers_are_dropped() -> None:
    request = (
        b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        b"2\r\nhi\r\n0\r\nauthorization: Bearer late\r\n\r\n"
    )
    async with serve(echo) as port:
        answer = await exchange(port, request)
    assert body_of(answer) == {"path": "/", "headers": ["connection", "host", "transfer-encoding"], "body": "hi"}


async def test_idle_connection_is_closed() -> None:
    async with serve(echo, replace(QUICK, idle_seconds=0)) as port:
        answer = await exchange(port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    assert statuses_of(answer) == [200]


async def test_connection_is_not_idle_during_its_response() -> None:
    looked = anyio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/other":
            looked.set()
        else:
            await looked.wait()
        await respond(send, b"done")

    async with serve(slow, replace(QUICK, idle_seconds=0)) as port, connect(port) as stream:
        await stream.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (
            await exchange(port, b"") == b""
        )  # a silent connection is closed, after the idle time of the first was checked
        assert b"done" in await exchange(port, b"GET /other HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"done" in await read_to_end(stream)


@pytest.mark.parametrize(
    "header", [(b"x-a", b"1\r\nx-b: 2"), (b"x-a\nx-b", b"2"), (b"x-a", b"1\x00"), (b"x-a", b"1\rx")]
)
async def test_response_header_with_a_line_break_is_never_sent(header: tuple[bytes, bytes]) -> None:
    async def careless(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [header, (b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"hi"})

    async with serve(careless) as port:
        answer = await exchange(port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    assert status_of(answer) == 500
    assert b"x-" not in answer


@pytest.mark.parametrize("body", [b"h", b"hii"])
async def test_response_of_the_wrong_length_ends_the_connection(body: bytes) -> None:
    async def wrong(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": body})

    async with serve(wrong) as port:
        assert body not in await exchange(port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")


async def test_head_of_a_stream_is_sent_before_its_body() -> None:
    seen = anyio.Event()

    async def stream_of(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await seen.wait()
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async with serve(stream_of) as port, connect(port) as stream:
        await stream.send(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert status_of(await read_until(stream, b"\r\n\r\n")) == 200
        seen.set()
        assert await read_to_end(stream) == b"3\r\none\r\n0\r\n\r\n"


async def test_large_response_is_sent_in_order() -> None:
    large = bytes(range(256)) * 1024

    async def many(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, large)

    async with serve(many) as port:
        answer = await exchange(port, b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert answer.split(b"\r\n\r\n", 1)[1] == large


async def test_oversized_trailers_are_answered_431() -> None:
    head = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"
    async with serve(echo) as port:
        answer = await exchange(port, head + (b"x-a: " + b"b" * 1000 + b"\r\n") * 70)
    assert status_of(answer) == 431


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with serve(echo) as port:
        requests = [b"GET /%d HTTP/1.1\r\nhost: x\r\n\r\n" % number for number in range(50)]
        answer = await exchange(port, b"".join(requests) + b"GET /end HTTP/1.1\r\nconnection: close\r\n\r\n")
    assert statuses_of(answer) == [200] * 51
    paths = [part.split(b'"', 1)[0] for part in answer.split(b'"path":"')[1:]]
    assert paths == [b"/%d" % number for number in range(50)] + [b"/end"]


async def test_http_1_0_client_gets_a_response_and_a_closed_connection() -> None:
    async with serve(echo) as port:
        answer = await exchange(port, b"GET / HTTP/1.0\r\n\r\n")
    assert status_of(answer) == 200


@pytest.mark.parametrize("offer", [b"h2c", b"websocket"])
async def test_offered_upgrade_is_ignored(offer: bytes) -> None:
    head = b"host: x\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: %b\r\nhttp2-settings: AAA\r\n" % offer
    async with serve(echo) as port, connect(port) as stream:
        await stream.send(b"GET /one HTTP/1.1\r\n" + head + b"\r\n")
        assert b'"/one"' in await read_until(stream, b"}")
        await stream.send(b"POST /two HTTP/1.1\r\n" + head + b"content-length: 2\r\n\r\nhi")
        assert body_of(await read_until(stream, b"}"))["body"] == "hi"
        for piece in (
            b"POST /three HTTP/1.1\r\n" + head + b"content-length: 8\r\n\r\n",
            b"GET ",
            b"/ HT",
            b"GET /four",
        ):
            await stream.send(piece)
        assert body_of(await read_until(stream, b"}"))["body"] == "GET / HT"
        await stream.send(b" HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b'"/four"' in await read_until(stream, b"}")


async def test_thousands_of_pipelined_upgrade_offers_are_answered_in_order() -> None:
    request = b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n"
    async with serve(echo) as port, connect(port) as stream:
        await stream.send(request * 3000 + b"GET /end HTTP/1.1\r\nconnection: close\r\n\r\n")
        answer = await read_to_end(stream)
    assert statuses_of(answer) == [200] * 3001
    assert b'"/end"' in answer


async def test_offered_upgrade_with_a_chunked_body_is_refused() -> None:
    head = b"host: x\r\nconnection: upgrade\r\nupgrade: h2c\r\ntransfer-encoding: chunked\r\n\r\n"
    async with serve(echo) as port:
        assert status_of(await exchange(port, b"POST / HTTP/1.1\r\n" + head + b"2\r\nhi\r\n0\r\n\r\n")) == 400


async def test_early_response_reaches_a_client_that_is_still_sending() -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, b"no")

    async with serve(refuse) as port, connect(port) as stream:
        await stream.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 20000000\r\n\r\n" + b"a" * 20_000_000)
        await read_until(stream, b"no")
        await stream.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await read_until(stream, b"no")


async def test_body_after_an_early_response_is_read_up_to_a_limit() -> None:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, b"no")

    async with serve(refuse, WireLimits(drained_bytes=100_000)) as port, connect(port) as stream:
        await stream.send(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 20000000\r\n\r\n")
        await read_until(stream, b"no")
        with pytest.raises(anyio.BrokenResourceError):
            while True:
                await stream.send(b"a" * 65_536)


class DisconnectWatcher:
    """Stream until the client disconnects, and record that it did."""

    def __init__(self) -> None:
        self.started = anyio.Event()
        self.gone = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        self.started.set()
        message: Message = {"type": ""}
        while message["type"] != "http.disconnect":
            message = await receive()
        self.gone.set()


async def test_request_notices_its_disconnected_client_behind_a_pipelined_one() -> None:
    app = DisconnectWatcher()
    async with serve(app) as port:
        async with connect(port) as stream:
            await stream.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\nGET /next HTTP/1.1\r\nhost: x\r\n\r\n")
            await read_until(stream, b"first")
        with anyio.fail_after(5):
            await app.gone.wait()


async def test_client_that_does_not_read_is_dropped() -> None:
    over = anyio.Event()

    async def flood(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while True:
                with anyio.fail_after(5):
                    await send({"type": "http.response.body", "body": b"a" * 65_536, "more_body": True})
                if (await poll(receive))["type"] == "http.disconnect":
                    return
        finally:
            over.set()

    async def poll(receive: Receive) -> Message:
        message: Message = {"type": "none"}
        with anyio.move_on_after(0.001):
            message = await receive()
        return message

    async with serve(flood, QUICK) as port:
        plain = raw_connection(port, receive_buffer=4096)
        try:
            plain.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            with anyio.fail_after(10):
                await over.wait()
        finally:
            plain.close()


async def hang(scope: Scope, receive: Receive, send: Send) -> None:
    """Claim the connection for the owner, begin a response, and end it when the client sends more."""
    assert scope["state"][CONNECTION].claim(OWNER_KEY)
    headers = [(b"content-length", b"4")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"on", "more_body": True})
    await receive()
    await send({"type": "http.response.body", "body": b"ly"})


HALF_A_REQUEST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n"


async def test_connection_beyond_the_capacity_is_refused_while_all_others_are_busy() -> None:
    async with serve(hang, WireLimits(connections=2)) as port, connect(port) as one, connect(port) as two:
        for stream in (one, two):
            await stream.send(HALF_A_REQUEST)
            await read_until(stream, b"on")
        answer = await exchange(port, b"")
        assert status_of(answer) == 503
        assert body_of(answer)["code"] == "crib.busy"
        await two.send(b"more")
        assert await read_until(two, b"ly") == b"ly"


async def test_connections_use_at_most_half_of_the_allowed_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def two_files(_: int) -> tuple[int, int]:
        return 2, 2

    monkeypatch.setattr("resource.getrlimit", two_files)
    async with serve(hang) as port, connect(port) as stream:
        await stream.send(HALF_A_REQUEST)
        await read_until(stream, b"on")
        assert status_of(await exchange(port, b"")) == 503


async def test_requests_in_flight_finish_when_the_server_stops() -> None:
    entered = anyio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        entered.set()
        await anyio.sleep(0.5)
        await respond(send, b"done")

    answers: list[bytes] = []
    async with anyio.create_task_group() as tasks, serve(slow) as port:

        async def fetch() -> None:
            answers.append(await exchange(port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"))

        tasks.start_soon(fetch)
        await entered.wait()
    assert status_of(answers[0]) == 200
    assert answers[0].endswith(b"done")
