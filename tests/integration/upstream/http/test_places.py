"""Where the lean client goes: the checked address, with the right name on the certificate, and nowhere else."""

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
    """A modern server that remembers the headers it was sent."""

    def __init__(self) -> None:
        self.seen: list[Mapping[str, str]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        self.seen.append(request.headers)
        message = orjson.loads(await request.body())
        body = orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": DISCOVERED})
        await Response(body, media_type="application/json")(scope, receive, send)


@pytest.fixture
def app() -> App:
    return App()


def talk(
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


async def test_a_public_server_is_reached_at_the_address_that_was_judged(app: App, tmp_path: Path) -> None:
    with anyio.fail_after(20):
        async with public_site(app, tmp_path) as site, talk(site, "https://a.example/mcp") as (connection, _):
            for _ in range(5):
                await connection.call("tools/list", {})
    assert site.sockets.dialled == [PUBLIC]
    assert site.names.asked == ["a.example"]
    assert {headers["host"] for headers in app.seen} == {"a.example"}


async def test_a_name_that_leads_into_this_network_is_not_followed(app: App, tmp_path: Path) -> None:
    with anyio.fail_after(20):
        async with public_site(app, tmp_path) as site:
            for address in ("127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1"):
                site.names.answers["a.example"] = [(address,)]
                with pytest.raises(Denied) as caught:
                    async with talk(site, "https://a.example/mcp"):
                        raise AssertionError("it was followed")
                assert caught.value.code == "address.refused"
    assert site.sockets.dialled == []


async def test_an_answer_that_changes_after_it_was_judged_changes_nothing(app: App, tmp_path: Path) -> None:
    with anyio.fail_after(20):
        async with public_site(app, tmp_path) as site:
            site.names.answers["a.example"] = [(PUBLIC,), ("127.0.0.1",)]
            async with talk(site, "https://a.example/mcp") as (connection, _):
                await connection.call("tools/list", {})
    assert site.sockets.dialled == [PUBLIC]


async def test_of_several_addresses_only_those_that_were_judged_are_dialled(app: App, tmp_path: Path) -> None:
    with anyio.fail_after(20):
        async with public_site(app, tmp_path) as site:
            site.names.answers["a.example"] = [("192.168.1.1", OTHER)]
            async with talk(site, "https://a.example/mcp"):
                pass
    assert site.sockets.dialled == [OTHER]


@pytest.mark.parametrize("is_over", [False, True])
async def test_a_certificate_that_is_not_the_servers_ends_the_connection(
    app: App, tmp_path: Path, is_over: bool
) -> None:
    made = make_certificates(("a.example",), is_over=True) if is_over else make_certificates(("c.example",))
    with anyio.fail_after(20):
        async with public_site(app, tmp_path, made) as site:
            with pytest.raises(ServerFailed, match="its certificate was rejected") as caught:
                async with talk(site, "https://a.example/mcp"):
                    raise AssertionError("it was accepted")
    assert caught.value.code == "server.unreachable"
    assert app.seen == []


async def test_headers_of_the_definition_are_sent_and_ours_are_not_replaced(app: App, tmp_path: Path) -> None:
    headers = {"X-Key": "k", "Authorization": "Bearer own", "Host": "evil.example", "Content-Length": "1"}
    with anyio.fail_after(20):
        async with public_site(app, tmp_path) as site, talk(site, "https://a.example/mcp", headers=headers):
            pass
    seen = app.seen[0]
    assert (seen["x-key"], seen["authorization"], seen["host"]) == ("k", "Bearer own", "a.example")
    assert seen["mcp-method"] == "server/discover"
    assert seen["accept-encoding"] == "identity"


async def test_a_header_that_would_end_itself_is_refused_before_anything_is_sent(app: App, tmp_path: Path) -> None:
    with anyio.fail_after(20):
        async with public_site(app, tmp_path) as site:
            with pytest.raises(InvalidRequest) as caught:
                async with talk(site, "https://a.example/mcp", headers={"x-key": "a\r\nhost: evil"}):
                    raise AssertionError("it was sent")
    assert caught.value.code == "server.invalid"
    assert site.sockets.dialled == []
