"""The client against real sockets: what it sends, and that every answer and every failure becomes the right thing."""

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
class Crib:
    """A listener that gives one prepared answer to everything and keeps what it was asked."""

    url: str = ""
    status: str = "200 OK"
    body: bytes = b"{}"
    media: str = "application/json"
    location: str = ""
    asked: list[str] = field(default_factory=list[str])
    bodies: list[bytes] = field(default_factory=list[bytes])

    async def answer(self, stream: SocketStream) -> None:
        async with stream:
            head, _, body = (await self._read(stream)).partition(b"\r\n\r\n")
            self.asked.append(head.decode().lower())
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

    def says(self, value: Json, status: str = "200 OK", media: str = "application/json") -> None:
        self.body, self.status, self.media = orjson.dumps(value), status, media


@asynccontextmanager
async def listening(handle: Callable[[SocketStream], object]) -> AsyncGenerator[str]:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        tasks.cancel_scope.cancel()


@pytest.fixture
async def crib() -> AsyncGenerator[Crib]:
    crib = Crib()
    async with listening(crib.answer) as crib.url:
        yield crib


@pytest.fixture
async def client(crib: Crib) -> AsyncGenerator[ApiClient]:
    async with ApiClient(crib.url, "the-token", source="cli", cwd="/a b/ü") as client:
        with anyio.fail_after(5):
            yield client


async def test_every_request_shows_the_token_and_says_where_it_comes_from(crib: Crib, client: ApiClient) -> None:
    crib.says([])
    await client.tools()
    assert "authorization: bearer the-token" in crib.asked[0]
    assert crib.asked[0].startswith("get /api/tools?source=cli&cwd=%2fa+b%2f%c3%bc http/1.1")


async def test_a_source_that_is_named_wins_over_the_clients_own(crib: Crib, client: ApiClient) -> None:
    crib.says([])
    await client.tools(source="ide", server="weather", query="rain snow")
    request = crib.asked[0].splitlines()[0]
    assert "source=ide" in request
    assert "source=cli" not in request
    assert "server=weather" in request
    assert "q=rain+snow" in request
    assert "agent" not in request


async def test_a_call_sends_its_arguments_as_json_and_gives_the_answer_whole(crib: Crib, client: ApiClient) -> None:
    answer: JsonObject = {"isError": False, "content": [], "durationMs": 1.5, "auditId": 7, "fromAFutureVersion": True}
    crib.says(answer)
    assert await client.call(REF, {"city": "Ulm", "big": 2**80, "odd": "\ud800"}) == answer
    assert crib.asked[0].startswith("post /api/tools/weather/forecast/call?")
    assert "content-type: application/json" in crib.asked[0]
    assert b'"big": 1208925819614629174706176' in crib.bodies[0]
    assert crib.bodies[0].isascii()


async def test_names_cannot_break_out_of_their_place_in_the_path(crib: Crib, client: ApiClient) -> None:
    await client.tool(ToolRef("a b", "x/../y?z#ü"))
    assert crib.asked[0].startswith("get /api/tools/a%20b/x%2f..%2fy%3fz%23%c3%bc?")


@pytest.mark.parametrize("code", CODES)
async def test_a_problem_comes_back_as_the_failure_it_was(crib: Crib, client: ApiClient, code: str) -> None:
    crib.says({"code": code, "detail": "It happened.", "hint": "Do this."}, "418 Teapot", "application/problem+json")
    with pytest.raises(ToolcribError) as caught:
        await client.settings()
    assert type(caught.value) is CODES[code].raised_as
    assert (caught.value.code, caught.value.message, caught.value.hint) == (code, "It happened.", "Do this.")


async def test_invalid_fields_are_named_without_their_part_of_the_request(crib: Crib, client: ApiClient) -> None:
    errors = [{"path": "query.mode", "message": "is unknown"}, {"path": "body", "message": "is empty"}]
    detail = "query.mode: is unknown; body: is empty"
    shape = {"code": "request.invalid", "detail": detail, "errors": errors, "hint": "Correct it."}
    crib.status, crib.body = "422 Unprocessable Content", orjson.dumps(shape)
    with pytest.raises(InvalidRequest) as caught:
        await client.settings()
    assert (caught.value.message, caught.value.hint) == ("mode: is unknown; body: is empty", "Correct it.")


async def test_a_code_of_a_newer_crib_is_still_a_failure_with_its_words(crib: Crib, client: ApiClient) -> None:
    crib.says({"code": "future.code", "detail": "Something new."}, "400 Bad")
    with pytest.raises(Unavailable, match="Something new") as caught:
        await client.audit(limit=5)
    assert caught.value.code == "internal"


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'{"code": 5, "detail": "x"}', b"\xff"])
async def test_a_refusal_without_a_reason_says_the_status(crib: Crib, client: ApiClient, body: bytes) -> None:
    crib.body, crib.status = body, "502 Bad Gateway"
    with pytest.raises(Unavailable, match="502"):
        await client.health()


async def test_something_else_at_the_address_is_noticed(crib: Crib, client: ApiClient) -> None:
    crib.body = b"<html>hello</html>"
    with pytest.raises(Unavailable, match="did not return JSON"):
        await client.settings()


async def test_a_redirect_is_never_followed(crib: Crib, client: ApiClient) -> None:
    other = Crib()
    async with listening(other.answer) as url:
        crib.status, crib.location = "307 Temporary Redirect", f"{url}/api/settings"
        with pytest.raises(Unavailable):
            await client.settings()
    assert other.asked == []


async def test_a_proxy_of_the_environment_is_not_used(crib: Crib, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Crib()
    async with listening(proxy.answer) as url:
        monkeypatch.setenv("HTTP_PROXY", url)
        monkeypatch.setenv("ALL_PROXY", url)
        async with ApiClient(crib.url, "the-token") as client:
            await client.health()
    assert (len(proxy.asked), len(crib.asked)) == (0, 1)


async def test_nobody_listening_is_unreachable() -> None:
    async with listening(Crib().answer) as url:
        pass
    async with ApiClient(url, "the-token") as client:
        with pytest.raises(Unavailable) as caught:
            await client.health()
    assert caught.value.code == "crib.unreachable"


async def test_a_crib_that_ends_before_it_answered_is_told_from_one_that_was_never_reached() -> None:
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
async def test_every_failure_of_the_transport_becomes_one_of_ours(
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


async def test_events_are_followed_in_order_and_end_with_the_stream(crib: Crib, client: ApiClient) -> None:
    first = b'id: 5\nevent: notice\ndata: {"seq":5,"at":"T1","kind":"notice","text":"a\\nb"}\n\n'
    second = b': ping\n\nid: 6\nevent: catalog_changed\ndata: {"seq":6,"at":"T2","kind":"catalog_changed"}\n\n'
    crib.body, crib.media = first + second, "text/event-stream"
    seen = [event async for event in client.events(after=4)]
    assert "after=4" in crib.asked[0].splitlines()[0]
    assert [(event.seq, event.at, event.kind, event.data) for event in seen] == [
        (5, "T1", "notice", {"text": "a\nb"}),
        (6, "T2", "catalog_changed", {}),
    ]


async def test_events_that_are_gone_are_said_to_be_gone(crib: Crib, client: ApiClient) -> None:
    crib.says({"code": "feed.gone", "detail": "Too old."}, "410 Gone", "application/problem+json")
    with pytest.raises(NotFound) as caught:
        async for _ in client.events(after=1):
            pass
    assert caught.value.code == "feed.gone"


async def test_a_fresh_login_link_is_asked_for_with_a_post(crib: Crib, client: ApiClient) -> None:
    crib.says({"url": "http://127.0.0.1:1/login?code=x"})
    assert await client.login() == "http://127.0.0.1:1/login?code=x"
    assert crib.asked[0].startswith("post /api/login?")


async def test_what_the_crib_denies_and_what_it_cannot_read_are_told_apart(crib: Crib, client: ApiClient) -> None:
    for code, kind in (("policy.denied", Denied), ("request.invalid", InvalidRequest)):
        crib.says({"code": code, "detail": "No."}, "400 Bad")
        with pytest.raises(kind):
            await client.verify_audit()
