"""The HTTP client connects only to checked addresses, with a valid certificate for the name."""

from collections.abc import Mapping
from pathlib import Path

import anyio
import orjson
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from integration.upstream.http.harness import DISCOVERED, HELLO, LOOPS, OpeningConnection
from integration.upstream.oauth.public_site import OTHER, PUBLIC, Site, make_certificates, public_site
from toolcrib.base.network.urls import check_url
from toolcrib.base.processes.process import ServerFailed
from toolcrib.model.errors import Denied, InvalidRequest
from toolcrib.upstream.http.handshake import open_web_server

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", LOOPS)]


class App:
    """A modern server that records the headers of its requests."""

    def __init__(self) -> None:
        self.headers_seen: list[Mapping[str, str]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        self.headers_seen.append(request.headers)
        message = orjson.loads(await request.body())
        body = orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": DISCOVERED})
        await Response(body, media_type="application/json")(scope, receive, send)


@pytest.fixture
def app() -> App:
    return App()


def connect(
    site: Site, url: str, *, local_allowed: bool = False, headers: Mapping[str, str] | None = None
) -> OpeningConnection:
    return open_web_server(
        site.web,
        "lab",
        check_url(url, local_allowed=local_allowed),
        transport="http",
        headers=headers or {},
        bearer=None,
        local_allowed=local_allowed,
        hello=HELLO,
        connect_wait=10,
    )


async def test_public_server_is_reached_at_the_checked_address(app: App, tmp_path: Path) -> None:
    with anyio.fail_after(20):
        async with public_site(app, tmp_path) as site, connect(site, "https://a.example/mcp") as (connection, _):
            for _ in range(5):
                await connection.call("tools/list", {})
    assert site.sockets.dialled == [PUBLIC]
    assert site.resolver.lookups == ["a.example"]
    assert {headers["host"] for headers in app.headers_seen} == {"a.example"}


async def test_name_that_resolves_to_a_private_address_is_refused(app: App, tmp_path: Path) -> None:
    with anyio.fail_after(20):
        async with public_site(app, tmp_path) as site:
            for address in ("127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1"):
                site.resolver.answers["a.example"] = [(address,)]
                with pytest.raises(Denied) as caught:
                    async with connect(site, "https://a.example/mcp"):
                        raise AssertionError("it was followed")
                assert caught.value.code == "address.refused"
    assert site.sockets.dialled == []


async def test_address_is_not_resolved_again_after_the_check(app: App, tmp_path: Path) -> None:
    with anyio.fail_after(20):
        async with public_site(app, tmp_path) as site:
            site.resolver.answers["a.example"] = [(PUBLIC,), ("127.0.0.1",)]
            async with connect(site, "https://a.example/mcp") as (connection, _):
                await connection.call("tools/list", {})
    assert site.sockets.dialled == [PUBLIC]


async def test_private_addresses_among_several_are_skipped(app: App, tmp_path: Path) -> None:
    with anyio.fail_after(20):
        async with public_site(app, tmp_path) as site:
            site.resolver.answers["a.example"] = [("192.168.1.1", OTHER)]
            async with connect(site, "https://a.example/mcp"):
                pass
    assert site.sockets.dialled == [OTHER]


@pytest.mark.parametrize("is_expired", [False, True])
async def test_certificate_that_is_expired_or_of_another_name_ends_the_connection(
    app: App, tmp_path: Path, is_expired: bool
) -> None:
    made = make_certificates(("a.example",), is_expired=True) if is_expired else make_certificates(("c.example",))
    with anyio.fail_after(20):
        async with public_site(app, tmp_path, made) as site:
            with pytest.raises(ServerFailed, match="its certificate was rejected") as caught:
                async with connect(site, "https://a.example/mcp"):
                    raise AssertionError("it was accepted")
    assert caught.value.code == "server.unreachable"
    assert app.headers_seen == []


async def test_definition_headers_are_sent_but_replace_no_protocol_headers(app: App, tmp_path: Path) -> None:
    headers = {"X-Key": "k", "Authorization": "Bearer own", "Host": "evil.example", "Content-Length": "1"}
    with anyio.fail_after(20):
        async with public_site(app, tmp_path) as site, connect(site, "https://a.example/mcp", headers=headers):
            pass
    headers_sent = app.headers_seen[0]
    assert (headers_sent["x-key"], headers_sent["authorization"], headers_sent["host"]) == (
        "k",
        "Bearer own",
        "a.example",
    )
    assert headers_sent["mcp-method"] == "server/discover"
    assert headers_sent["accept-encoding"] == "identity"


async def test_header_with_a_line_break_is_refused_before_anything_is_sent(app: App, tmp_path: Path) -> None:
    with anyio.fail_after(20):
        async with public_site(app, tmp_path) as site:
            with pytest.raises(InvalidRequest) as caught:
                async with connect(site, "https://a.example/mcp", headers={"x-key": "a\r\nhost: evil"}):
                    raise AssertionError("it was sent")
    assert caught.value.code == "server.invalid"
    assert site.sockets.dialled == []
