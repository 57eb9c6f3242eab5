"""The API client over real sockets: its requests, and the results and errors of the responses."""

import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import httpx2
import orjson
import pytest
from anyio.abc import SocketAttribute, SocketStream

from toolcrib.model.errors import CODES, Denied, InvalidRequest, NotFound, ToolcribError, Unavailable
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.tools import ToolRef
from toolcrib.web.api_client.api_client import ApiClient

pytestmark = pytest.mark.anyio

REF = ToolRef("weather", "forecast")


@dataclass
class FakeCrib:
    """A listener with one prepared response for every request; it records the requests."""

    url: str = ""
    status: str = "200 OK"
    body: bytes = b"{}"
    media: str = "application/json"
    location: str = ""
    requests: list[str] = field(default_factory=list[str])
    bodies: list[bytes] = field(default_factory=list[bytes])

    async def answer(self, stream: SocketStream) -> None:
        async with stream:
            head, _, body = (await self._read(stream)).partition(b"\r\n\r\n")
            self.requests.append(head.decode().lower())
            self.bodies.append(body)
            lines = [f"HTTP/1.1 {self.status}", f"content-type: {self.media}", f"content-length: {len(self.body)}"]
            lines += ["connection: close"] + ([f"location: {self.location}"] if self.location else [])
            await stream.send("\r\n".join(lines).encode() + b"\r\n\r\n" + self.body)

    async def _read(self, stream: SocketStream) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            data += await stream.receive()
        head, _, body = data.partition(b"\r\n\r\n")
        wanted = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")), 0)
        while len(body) < wanted:
            body += await stream.receive()
        return head + b"\r\n\r\n" + body

    def respond_with(self, value: Json, status: str = "200 OK", media: str = "application/json") -> None:
        self.body, self.status, self.media = orjson.dumps(value), status, media


@asynccontextmanager
async def listening(handle: Callable[[SocketStream], object]) -> AsyncGenerator[str]:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        tasks.cancel_scope.cancel()


@pytest.fixture
async def crib() -> AsyncGenerator[FakeCrib]:
    crib = FakeCrib()
    async with listening(crib.answer) as crib.url:
        yield crib


@pytest.fixture
async def client(crib: FakeCrib) -> AsyncGenerator[ApiClient]:
    async with ApiClient(crib.url, "the-token", source="cli", cwd="/a b/ü") as client:
        with anyio.fail_after(5):
            yield client


async def test_request_has_the_token_the_source_and_the_directory(crib: FakeCrib, client: ApiClient) -> None:
    crib.respond_with([])
    await client.tools()
    assert "authorization: bearer the-token" in crib.requests[0]
    assert crib.requests[0].startswith("get /api/tools?source=cli&cwd=%2fa+b%2f%c3%bc http/1.1")


async def test_explicit_source_overrides_that_of_the_client(crib: FakeCrib, client: ApiClient) -> None:
    crib.respond_with([])
    await client.tools(source="ide", server="weather", query="rain snow")
    request = crib.requests[0].splitlines()[0]
    assert "source=ide" in request
    assert "source=cli" not in request
    assert "server=weather" in request
    assert "q=rain+snow" in request
    assert "agent" not in request


async def test_call_sends_json_arguments_and_returns_the_complete_answer(crib: FakeCrib, client: ApiClient) -> None:
    answer: JsonObject = {"isError": False, "content": [], "durationMs": 1.5, "auditId": 7, "fromAFutureVersion": True}
    crib.respond_with(answer)
    assert await client.call(REF, {"city": "Ulm", "big": 2**80, "odd": "\ud800"}) == answer
    assert crib.requests[0].startswith("post /api/tools/weather/forecast/call?")
    assert "content-type: application/json" in crib.requests[0]
    assert b'"big": 1208925819614629174706176' in crib.bodies[0]
    assert crib.bodies[0].isascii()


async def test_names_are_escaped_in_the_path(crib: FakeCrib, client: ApiClient) -> None:
    await client.tool(ToolRef("a b", "x/../y?z#ü"))
    assert crib.requests[0].startswith("get /api/tools/a%20b/x%2f..%2fy%3fz%23%c3%bc?")


@pytest.mark.parametrize("code", CODES)
async def test_problem_is_raised_as_the_original_error(crib: FakeCrib, client: ApiClient, code: str) -> None:
    crib.respond_with(
        {"code": code, "detail": "It happened.", "hint": "Do this."}, "418 Teapot", "application/problem+json"
    )
    with pytest.raises(ToolcribError) as caught:
        await client.settings()
    assert type(caught.value) is CODES[code].raised_as
    assert (caught.value.code, caught.value.message, caught.value.hint) == (code, "It happened.", "Do this.")


async def test_invalid_fields_are_named_without_their_part_of_the_request(crib: FakeCrib, client: ApiClient) -> None:
    errors = [{"path": "query.mode", "message": "is unknown"}, {"path": "body", "message": "is empty"}]
    detail = "query.mode: is unknown; body: is empty"
    shape = {"code": "request.invalid", "detail": detail, "errors": errors, "hint": "Correct it."}
    crib.status, crib.body = "422 Unprocessable Content", orjson.dumps(shape)
    with pytest.raises(InvalidRequest) as caught:
        await client.settings()
    assert (caught.value.message, caught.value.hint) == ("mode: is unknown; body: is empty", "Correct it.")


async def test_unknown_error_code_keeps_its_message(crib: FakeCrib, client: ApiClient) -> None:
    crib.respond_with({"code": "future.code", "detail": "Something new."}, "400 Bad")
    with pytest.raises(Unavailable, match="Something new") as caught:
        await client.audit(limit=5)
    assert caught.value.code == "internal"


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'{"code": 5, "detail": "x"}', b"\xff"])
async def test_response_without_a_problem_reports_the_status(crib: FakeCrib, client: ApiClient, body: bytes) -> None:
    crib.body, crib.status = body, "502 Bad Gateway"
    with pytest.raises(Unavailable, match="502"):
        await client.health()


async def test_response_that_is_not_json_is_an_error(crib: FakeCrib, client: ApiClient) -> None:
    crib.body = b"<html>hello</html>"
    with pytest.raises(Unavailable, match="did not return JSON"):
        await client.settings()


async def test_redirect_is_not_followed(crib: FakeCrib, client: ApiClient) -> None:
    other = FakeCrib()
    async with listening(other.answer) as url:
        crib.status, crib.location = "307 Temporary Redirect", f"{url}/api/settings"
        with pytest.raises(Unavailable):
            await client.settings()
    assert other.requests == []


async def test_proxy_of_the_environment_is_not_used(crib: FakeCrib, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = FakeCrib()
    async with listening(proxy.answer) as url:
        monkeypatch.setenv("HTTP_PROXY", url)
        monkeypatch.setenv("ALL_PROXY", url)
        async with ApiClient(crib.url, "the-token") as client:
            await client.health()
    assert (len(proxy.requests), len(crib.requests)) == (0, 1)


async def test_refused_connection_is_reported_as_unreachable() -> None:
    async with listening(FakeCrib().answer) as url:
        pass
    async with ApiClient(url, "the-token") as client:
        with pytest.raises(Unavailable) as caught:
            await client.health()
    assert caught.value.code == "crib.unreachable"


async def test_crib_that_closes_before_its_answer_is_reported_as_closed() -> None:
    async def hang_up(stream: SocketStream) -> None:
        await stream.receive()
        await stream.aclose()

    async with listening(hang_up) as url, ApiClient(url, "the-token") as client:
        with pytest.raises(Unavailable) as caught:
            await client.call(REF, {})
    assert caught.value.code == "crib.closed"
    assert caught.value.hint is not None
    assert "toolcrib audit" in caught.value.hint


TRANSPORT_FAILURES = [
    kind for _, kind in inspect.getmembers(httpx2, inspect.isclass) if issubclass(kind, httpx2.TransportError)
]


@pytest.mark.parametrize("kind", TRANSPORT_FAILURES)
async def test_each_transport_error_is_raised_as_unavailable(
    kind: type[httpx2.TransportError], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> httpx2.Response:
        raise kind("failed")

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", fail)
    async with ApiClient("http://127.0.0.1:1", "the-token") as client:
        with pytest.raises(Unavailable) as caught:
            await client.health()
    never_sent = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
    assert caught.value.code == ("crib.unreachable" if issubclass(kind, never_sent) else "crib.closed")


async def test_events_are_followed_in_order_and_end_with_the_stream(crib: FakeCrib, client: ApiClient) -> None:
    first = b'id: 5\nevent: notice\ndata: {"seq":5,"at":"T1","kind":"notice","text":"a\\nb"}\n\n'
    second = b': ping\n\nid: 6\nevent: catalog_changed\ndata: {"seq":6,"at":"T2","kind":"catalog_changed"}\n\n'
    crib.body, crib.media = first + second, "text/event-stream"
    seen = [event async for event in client.events(after=4)]
    assert "after=4" in crib.requests[0].splitlines()[0]
    assert [(event.seq, event.at, event.kind, event.data) for event in seen] == [
        (5, "T1", "notice", {"text": "a\nb"}),
        (6, "T2", "catalog_changed", {}),
    ]


async def test_expired_events_raise_not_found(crib: FakeCrib, client: ApiClient) -> None:
    crib.respond_with({"code": "feed.gone", "detail": "Too old."}, "410 Gone", "application/problem+json")
    with pytest.raises(NotFound) as caught:
        async for _ in client.events(after=1):
            pass
    assert caught.value.code == "feed.gone"


async def test_new_login_link_is_requested_with_post(crib: FakeCrib, client: ApiClient) -> None:
    crib.respond_with({"url": "http://127.0.0.1:1/login?code=x"})
    assert await client.login() == "http://127.0.0.1:1/login?code=x"
    assert crib.requests[0].startswith("post /api/login?")


async def test_denied_and_invalid_requests_raise_different_errors(crib: FakeCrib, client: ApiClient) -> None:
    for code, kind in (("policy.denied", Denied), ("request.invalid", InvalidRequest)):
        crib.respond_with({"code": code, "detail": "No."}, "400 Bad")
        with pytest.raises(kind):
            await client.verify_audit()
