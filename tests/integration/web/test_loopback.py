"""The HTTP client of a stdio process, against a real server."""

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream
from starlette.types import Receive, Scope, Send

from integration.web.wire import serve
from toolcrib.web.limits import WireLimits
from toolcrib.web.listen import bind
from toolcrib.web.loopback import LoopbackHttp, Lost, Unreached

pytestmark = pytest.mark.anyio


async def body_of(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    return body


async def test_bodies_of_any_size_and_encoding_share_one_connection() -> None:
    clients: set[object] = set()

    async def echo(scope: Scope, receive: Receive, send: Send) -> None:
        clients.add(scope["client"])
        body = await body_of(receive)
        headers = [] if scope["path"] == "/chunked" else [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        half = len(body) // 2
        await send({"type": "http.response.body", "body": body[:half], "more_body": True})
        await send({"type": "http.response.body", "body": body[half:]})

    http = LoopbackHttp("secret")
    async with serve(echo) as port:
        for path in ("/plain", "/chunked"):
            for size in (0, 1, 100_000, 3_000_000):
                sent = b"x" * size
                async with http.stream("POST", f"http://127.0.0.1:{port}{path}", sent) as response:
                    assert response.status == 200
                    assert await response.read() == sent
        http.close()
    assert len(clients) == 1


async def test_request_carries_token_host_path_and_query() -> None:
    seen: list[Scope] = []

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    http = LoopbackHttp("secret")
    async with serve(note) as port:
        async with http.stream("GET", f"http://127.0.0.1:{port}/a%20b?c=d", headers={"x-y": "z"}) as response:
            assert (response.status, await response.read()) == (204, b"")
        http.close()
    headers = dict(seen[0]["headers"])
    assert headers[b"authorization"] == b"Bearer secret"
    assert headers[b"host"] == b"127.0.0.1:%d" % port
    assert headers[b"x-y"] == b"z"
    assert (seen[0]["path"], seen[0]["query_string"]) == ("/a b", b"c=d")


async def test_cancelled_request_disconnects_from_the_server() -> None:
    disconnected, entered = anyio.Event(), anyio.Event()

    async def wait(scope: Scope, receive: Receive, send: Send) -> None:
        await body_of(receive)
        entered.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        disconnected.set()

    http = LoopbackHttp("secret")
    async with serve(wait) as port, anyio.create_task_group() as tasks:

        async def request() -> None:
            async with http.stream("POST", f"http://127.0.0.1:{port}/", b"x"):
                raise AssertionError("It was answered.")

        tasks.start_soon(request)
        await entered.wait()
        tasks.cancel_scope.cancel()
    with anyio.fail_after(10):
        await disconnected.wait()


async def test_connection_closed_by_the_server_is_not_reused() -> None:
    async def plain(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    http = LoopbackHttp("secret")
    async with serve(plain, WireLimits(head_seconds=0.1)) as port:
        url = f"http://127.0.0.1:{port}/"
        async with http.stream("GET", url) as response:
            await response.read()
        (kept,) = http.idle(f"127.0.0.1:{port}")
        with anyio.fail_after(10):
            await kept.reader.read()  # the server closes what is idle
        async with http.stream("GET", url) as response:
            assert await response.read() == b"ok"
        http.close()


async def test_unreachable_server_is_reported() -> None:
    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    listener.close()
    with pytest.raises(Unreached):
        async with LoopbackHttp("secret").stream("GET", f"http://127.0.0.1:{port}/"):
            pass


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab", b"no http\r\n\r\n"],
    ids=["nothing", "half a head", "half a body", "something else"],
)
async def test_truncated_or_invalid_response_is_reported_as_lost(answer: bytes) -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)

    async def handle(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            if answer:
                await stream.send(answer)

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        port = listener.extra(SocketAttribute.local_port)
        with pytest.raises(Lost):
            async with LoopbackHttp("secret").stream("GET", f"http://127.0.0.1:{port}/") as response:
                await response.read()
        tasks.cancel_scope.cancel()
