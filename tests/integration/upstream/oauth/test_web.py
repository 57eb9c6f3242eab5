"""The HTTP client against servers that stand for public ones: where it goes, what it takes along, how much it reads."""

import gzip
import socket
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from integration.upstream.oauth.authority import credentials_in, listening_socket, serve_on
from integration.upstream.oauth.public_site import OTHER, PUBLIC, Site, make_certificates, public_site
from toolcrib.base.network.urls import check_url
from toolcrib.base.network.web import MAX_DOCUMENT, Web, answered_locally, get, open_web
from toolcrib.model.errors import ConfigError, Denied, InvalidRequest, Unavailable
from toolcrib.upstream.oauth.sign_in import Target, signing_in

pytestmark = pytest.mark.anyio


class App:
    """Answers by path; remembers the headers of each request."""

    def __init__(self) -> None:
        self.seen: list[httpx2.Headers] = []
        self.leads_to: str = ""
        self.answers: dict[str, Response] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        self.seen.append(httpx2.Headers(list(request.headers.items())))
        answer = RedirectResponse(self.leads_to, 307) if scope["path"] == "/go" else Response(b"here")
        await self.answers.get(scope["path"], answer)(scope, receive, send)


@pytest.fixture
def app() -> App:
    return App()


async def read(site: Site, url: str, headers: dict[str, str] | None = None) -> httpx2.Response:
    async with site.web.documents(local_allowed=False) as client:
        with anyio.fail_after(15):
            return await get(client, url, headers)


async def test_a_public_server_is_reached_at_the_address_that_was_judged(app: App, tmp_path: Path) -> None:
    async with public_site(app, tmp_path) as site:
        response = await read(site, "https://a.example/x")
        assert response.content == b"here"
        assert not answered_locally(response)
    assert site.sockets.dialled == [PUBLIC]
    assert site.names.asked == ["a.example"]
    assert app.seen[0]["host"] == "a.example"


async def test_an_answer_that_changes_after_it_was_judged_leads_nowhere(app: App, tmp_path: Path) -> None:
    async with public_site(app, tmp_path) as site:
        site.names.answers["a.example"] = [(PUBLIC,), ("127.0.0.1",), ("169.254.169.254",)]
        assert (await read(site, "https://a.example/")).status_code == 200
        for _ in range(2):
            with pytest.raises(Denied) as refusal:
                await read(site, "https://a.example/")
            assert refusal.value.code == "address.refused"
    assert site.sockets.dialled == [PUBLIC]
    assert len(site.names.asked) == 3


async def test_of_mixed_addresses_only_the_judged_ones_are_dialled(app: App, tmp_path: Path) -> None:
    async with public_site(app, tmp_path) as site:
        site.names.answers["a.example"] = [("10.0.0.1", "::1", PUBLIC, "127.0.0.1")]
        assert (await read(site, "https://a.example/")).status_code == 200
    assert site.sockets.dialled == [PUBLIC]


async def test_a_dead_address_costs_little(app: App, tmp_path: Path) -> None:
    async with public_site(app, tmp_path) as site:
        closed, port = listening_socket()
        closed.close()
        site.sockets.ports["93.184.216.99"] = port
        site.names.answers["a.example"] = [("93.184.216.99", PUBLIC)]
        assert (await read(site, "https://a.example/")).status_code == 200
    assert site.sockets.dialled == ["93.184.216.99", PUBLIC]


async def test_each_redirect_is_judged_anew(app: App, tmp_path: Path) -> None:
    victim, port = listening_socket()
    with victim:
        async with public_site(app, tmp_path) as site:
            site.names.answers["inside.example"] = [("127.0.0.1",)]
            for address, refusal in (
                (f"https://inside.example:{port}/", Denied),
                (f"http://127.0.0.1:{port}/", InvalidRequest),
                (f"https://127.0.0.1:{port}/", InvalidRequest),
                ("http://a.example/", InvalidRequest),
                ("file:///etc/passwd", InvalidRequest),
                ("https://user:pw@b.example/", InvalidRequest),
            ):
                app.leads_to = address
                with pytest.raises(refusal):
                    await read(site, "https://a.example/go")
        victim.setblocking(False)
        with pytest.raises(BlockingIOError):
            victim.accept()
    assert set(site.sockets.dialled) == {PUBLIC}


async def test_secrets_stay_with_their_origin(app: App, tmp_path: Path) -> None:
    secrets = {"authorization": "Bearer t", "x-api-key": "k", "cookie": "c=1", "accept": "application/json"}
    async with public_site(app, tmp_path) as site:
        app.leads_to = "/there"
        await read(site, "https://a.example/go", secrets)
        app.leads_to = "https://b.example/there"
        await read(site, "https://a.example/go", secrets)
    same, other = app.seen[1], app.seen[3]
    assert (same["authorization"], same["x-api-key"]) == ("Bearer t", "k")
    assert other["host"] == "b.example"
    assert other["accept"] == "application/json"
    assert not {"authorization", "x-api-key", "cookie"} & set(other)
    assert site.sockets.dialled[-1] == OTHER


async def test_an_upstream_client_follows_nothing_by_itself(app: App, tmp_path: Path) -> None:
    async with public_site(app, tmp_path) as site, site.web.client(local_allowed=False) as client:
        app.leads_to = "https://b.example/"
        assert (await client.get("https://a.example/go")).status_code == 307
    assert site.sockets.dialled == [PUBLIC]


async def test_a_redirect_without_end_ends(app: App, tmp_path: Path) -> None:
    async with public_site(app, tmp_path) as site:
        app.leads_to = "/go"
        with pytest.raises(httpx2.TooManyRedirects):
            await read(site, "https://a.example/go")
    assert len(app.seen) == 6


@pytest.mark.parametrize("kind", ["expired", "another name", "another authority"])
async def test_a_certificate_is_checked(app: App, tmp_path: Path, kind: str) -> None:
    made = make_certificates(
        is_over=kind == "expired", names=("c.example",) if kind == "another name" else ("a.example",)
    )
    if kind == "another authority":
        made = made._replace(authority=make_certificates().authority)
    async with public_site(app, tmp_path, made) as site:
        with pytest.raises(httpx2.ConnectError, match="certificate verify failed"):
            await read(site, "https://a.example/")
    assert not app.seen


@pytest.mark.parametrize("packed", ["gzip", "deflate", "identity"])
async def test_what_is_too_large_is_not_read_to_its_end(app: App, tmp_path: Path, packed: str) -> None:
    zeros = bytes(64 * MAX_DOCUMENT)
    body = {"gzip": gzip.compress, "deflate": zlib.compress}.get(packed, bytes)(zeros)
    async with public_site(app, tmp_path) as site:
        app.answers["/"] = Response(body, headers={"content-encoding": packed})
        with pytest.raises(httpx2.RemoteProtocolError, match="larger than"):
            await read(site, "https://a.example/")
        app.answers["/"] = Response(body, headers={"content-encoding": packed, "content-type": "text/event-stream"})
        with pytest.raises(httpx2.RemoteProtocolError, match="larger than"):
            await read(site, "https://a.example/")
    assert app.seen[0]["accept-encoding"] == "identity"


async def test_what_comes_packed_is_unpacked(app: App, tmp_path: Path) -> None:
    text = bytes(range(256)) * 3000
    async with public_site(app, tmp_path) as site:
        for packed, body in (
            ("gzip", gzip.compress(text)),
            ("deflate", zlib.compress(text)),
            ("x-gzip", gzip.compress(text)),
        ):
            app.answers["/"] = Response(body, headers={"content-encoding": packed})
            assert (await read(site, "https://a.example/")).content == text
        for packed, body in (("br", b"x"), ("gzip, gzip", b"x")):
            app.answers["/"] = Response(body, headers={"content-encoding": packed})
            with pytest.raises(httpx2.RemoteProtocolError, match="unsupported encoding"):
                await read(site, "https://a.example/")
        app.answers["/"] = Response(b"not gzip", headers={"content-encoding": "gzip"})
        with pytest.raises(httpx2.DecodingError):
            await read(site, "https://a.example/")


async def test_an_event_stream_that_was_asked_for_may_be_long(app: App, tmp_path: Path) -> None:
    async def events() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield bytes(MAX_DOCUMENT)

    async with public_site(app, tmp_path) as site, site.web.documents(local_allowed=False) as client:
        app.answers["/"] = StreamingResponse(events(), media_type="text/event-stream")
        response = await client.get("https://a.example/", headers={"accept": "text/event-stream"})
    assert len(response.content) == 3 * MAX_DOCUMENT


async def test_a_name_nobody_knows_is_a_failed_connection(app: App, tmp_path: Path) -> None:
    async with public_site(app, tmp_path) as site:
        with pytest.raises(httpx2.ConnectError, match="cannot be resolved"):
            await read(site, "https://nowhere.example/")
        site.names.answers["empty.example"] = [()]
        with pytest.raises(httpx2.ConnectError, match="no address"):
            await read(site, "https://empty.example/")


@pytest.mark.anyio
async def test_certificates_are_read_once_in_a_process() -> None:
    assert (await open_web({})).ssl_context is (await open_web({})).ssl_context


async def test_a_server_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    silent, port = listening_socket()
    with silent:
        web = Web((await open_web({})).ssl_context)
        async with web.client(local_allowed=True, timeout=httpx2.Timeout(0.1)) as client:
            with pytest.raises(httpx2.ReadTimeout):
                await client.get(f"http://127.0.0.1:{port}/")

    async def slow(host: str, port: int) -> tuple[str, ...]:
        await anyio.sleep_forever()
        return ()

    async with Web(web.ssl_context, slow).client(local_allowed=True, timeout=httpx2.Timeout(0.1)) as client:
        with pytest.raises(httpx2.ConnectTimeout):
            await client.get("https://slow.example/")


async def test_plain_http_dials_this_machine_only_whatever_a_name_leads_to(app: App) -> None:
    sock, port = listening_socket()
    async with serve_on(app, sock):
        web = await open_web({})
        async with web.client(local_allowed=True) as client:
            response = await client.get(f"http://localhost:{port}/")
            assert response.content == b"here"
            assert answered_locally(response)

        async def lies(host: str, port: int) -> tuple[str, ...]:
            return ("192.168.0.1",)

        async with Web(web.ssl_context, lies).client(local_allowed=True) as client:
            with pytest.raises(Denied):
                await client.get(f"http://localhost:{port}/")
    assert len(app.seen) == 1


async def test_nothing_is_taken_from_the_environment(app: App, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trap = socket.create_server(("127.0.0.1", 0))
    proxy = f"http://127.0.0.1:{trap.getsockname()[1]}"
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, proxy)
    evil = tmp_path / "evil.pem"
    evil.write_text(make_certificates().authority)
    monkeypatch.setenv("SSL_CERT_FILE", str(evil))
    with trap:
        async with public_site(app, tmp_path) as site:
            assert (await read(site, "https://a.example/")).status_code == 200
            web = await open_web({}, site.names, site.sockets)
            async with web.documents(local_allowed=False) as client:
                with pytest.raises(httpx2.ConnectError, match="certificate verify failed"):
                    await get(client, "https://a.example/")
        trap.setblocking(False)
        with pytest.raises(BlockingIOError):
            trap.accept()


async def test_certificates_come_from_the_named_file(app: App, tmp_path: Path) -> None:
    own = tmp_path / "own.pem"
    own.write_text(make_certificates().authority)
    async with public_site(app, tmp_path) as site:
        web = await open_web({"SSL_CERT_FILE": str(own)}, site.names, site.sockets)
        async with web.documents(local_allowed=False) as client:
            assert (await get(client, "https://a.example/")).status_code == 200


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
async def test_certificates_that_cannot_be_read_are_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=name) as raised:
        await open_web({name: str(tmp_path / "missing")})
    assert raised.value.code == "settings.invalid"


@pytest.mark.parametrize("local_allowed", [False, True])
async def test_a_public_server_cannot_send_a_sign_in_into_this_network(
    app: App, tmp_path: Path, local_allowed: bool
) -> None:
    """Even where the owner's definition may name local servers: this one is not local."""
    victim, port = listening_socket()
    target = Target("lab", check_url("https://a.example/mcp", local_allowed=False), local_allowed)
    with victim:
        async with public_site(app, tmp_path) as site:
            site.names.answers["inside.example"] = [("10.0.0.1",)]
            for place in (f"http://127.0.0.1:{port}/", "https://inside.example/", "https://169.254.169.254/latest"):
                challenge = f'Bearer resource_metadata="{place}"'
                app.answers["/mcp"] = Response(status_code=401, headers={"www-authenticate": challenge})
                with pytest.raises(Unavailable, match=r"was refused|may not be contacted"):
                    async with signing_in(site.web, credentials_in(tmp_path), target):
                        pass
        victim.setblocking(False)
        with pytest.raises(BlockingIOError):
            victim.accept()
    assert set(site.sockets.dialled) == {PUBLIC}
