"""The HTTP client against servers in the place of public ones: addresses, redirects, secrets and size limits."""

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
from toolcrib.base.network.guarded_client import answered_locally, get
from toolcrib.base.network.urls import check_url
from toolcrib.base.network.web import MAX_DOCUMENT, Web, open_web
from toolcrib.model.errors import ConfigError, Denied, InvalidRequest, Unavailable
from toolcrib.upstream.oauth.sign_in import Target, signing_in

pytestmark = pytest.mark.anyio


class App:
    """Answers by path and records the headers of each request."""

    def __init__(self) -> None:
        self.headers_seen: list[httpx2.Headers] = []
        self.redirect_url: str = ""
        self.answers: dict[str, Response] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        self.headers_seen.append(httpx2.Headers(list(request.headers.items())))
        answer = RedirectResponse(self.redirect_url, 307) if scope["path"] == "/go" else Response(b"here")
        await self.answers.get(scope["path"], answer)(scope, receive, send)


@pytest.fixture
def app() -> App:
    return App()


async def read(site: Site, url: str, headers: dict[str, str] | None = None) -> httpx2.Response:
    async with site.web.documents(local_allowed=False) as client:
        with anyio.fail_after(15):
            return await get(client, url, headers)


async def test_public_server_is_reached_at_the_checked_address(app: App, tmp_path: Path) -> None:
    async with public_site(app, tmp_path) as site:
        response = await read(site, "https://a.example/x")
        assert response.content == b"here"
        assert not answered_locally(response)
    assert site.sockets.dialled == [PUBLIC]
    assert site.resolver.lookups == ["a.example"]
    assert app.headers_seen[0]["host"] == "a.example"


async def test_changed_address_is_checked_on_every_request(app: App, tmp_path: Path) -> None:
    async with public_site(app, tmp_path) as site:
        site.resolver.answers["a.example"] = [(PUBLIC,), ("127.0.0.1",), ("169.254.169.254",)]
        assert (await read(site, "https://a.example/")).status_code == 200
        for _ in range(2):
            with pytest.raises(Denied) as refusal:
                await read(site, "https://a.example/")
            assert refusal.value.code == "address.refused"
    assert site.sockets.dialled == [PUBLIC]
    assert len(site.resolver.lookups) == 3


async def test_private_addresses_among_several_are_skipped(app: App, tmp_path: Path) -> None:
    async with public_site(app, tmp_path) as site:
        site.resolver.answers["a.example"] = [("10.0.0.1", "::1", PUBLIC, "127.0.0.1")]
        assert (await read(site, "https://a.example/")).status_code == 200
    assert site.sockets.dialled == [PUBLIC]


async def test_unreachable_address_is_followed_by_the_next_one(app: App, tmp_path: Path) -> None:
    async with public_site(app, tmp_path) as site:
        closed, port = listening_socket()
        closed.close()
        site.sockets.ports["93.184.216.99"] = port
        site.resolver.answers["a.example"] = [("93.184.216.99", PUBLIC)]
        assert (await read(site, "https://a.example/")).status_code == 200
    assert site.sockets.dialled == ["93.184.216.99", PUBLIC]


async def test_each_redirect_is_checked(app: App, tmp_path: Path) -> None:
    victim, port = listening_socket()
    with victim:
        async with public_site(app, tmp_path) as site:
            site.resolver.answers["inside.example"] = [("127.0.0.1",)]
            for address, refusal in (
                (f"https://inside.example:{port}/", Denied),
                (f"http://127.0.0.1:{port}/", InvalidRequest),
                (f"https://127.0.0.1:{port}/", InvalidRequest),
                ("http://a.example/", InvalidRequest),
                ("file:///etc/passwd", InvalidRequest),
                ("https://user:pw@b.example/", InvalidRequest),
            ):
                app.redirect_url = address
                with pytest.raises(refusal):
                    await read(site, "https://a.example/go")
        victim.setblocking(False)
        with pytest.raises(BlockingIOError):
            victim.accept()
    assert set(site.sockets.dialled) == {PUBLIC}


async def test_redirect_to_another_origin_drops_secrets(app: App, tmp_path: Path) -> None:
    secrets = {"authorization": "Bearer t", "x-api-key": "k", "cookie": "c=1", "accept": "application/json"}
    async with public_site(app, tmp_path) as site:
        app.redirect_url = "/there"
        await read(site, "https://a.example/go", secrets)
        app.redirect_url = "https://b.example/there"
        await read(site, "https://a.example/go", secrets)
    same, other = app.headers_seen[1], app.headers_seen[3]
    assert (same["authorization"], same["x-api-key"]) == ("Bearer t", "k")
    assert other["host"] == "b.example"
    assert other["accept"] == "application/json"
    assert not {"authorization", "x-api-key", "cookie"} & set(other)
    assert site.sockets.dialled[-1] == OTHER


async def test_client_of_upstreams_follows_no_redirects(app: App, tmp_path: Path) -> None:
    async with public_site(app, tmp_path) as site, site.web.client(local_allowed=False) as client:
        app.redirect_url = "https://b.example/"
        assert (await client.get("https://a.example/go")).status_code == 307
    assert site.sockets.dialled == [PUBLIC]


async def test_endless_redirects_are_limited(app: App, tmp_path: Path) -> None:
    async with public_site(app, tmp_path) as site:
        app.redirect_url = "/go"
        with pytest.raises(httpx2.TooManyRedirects):
            await read(site, "https://a.example/go")
    assert len(app.headers_seen) == 6


@pytest.mark.parametrize("kind", ["expired", "another name", "another authority"])
async def test_invalid_certificate_is_refused(app: App, tmp_path: Path, kind: str) -> None:
    made = make_certificates(
        is_expired=kind == "expired", names=("c.example",) if kind == "another name" else ("a.example",)
    )
    if kind == "another authority":
        made = made._replace(authority=make_certificates().authority)
    async with public_site(app, tmp_path, made) as site:
        with pytest.raises(httpx2.ConnectError, match="certificate verify failed"):
            await read(site, "https://a.example/")
    assert not app.headers_seen


@pytest.mark.parametrize("packed", ["gzip", "deflate", "identity"])
async def test_oversized_response_is_refused_before_its_end(app: App, tmp_path: Path, packed: str) -> None:
    zeros = bytes(64 * MAX_DOCUMENT)
    body = {"gzip": gzip.compress, "deflate": zlib.compress}.get(packed, bytes)(zeros)
    async with public_site(app, tmp_path) as site:
        app.answers["/"] = Response(body, headers={"content-encoding": packed})
        with pytest.raises(httpx2.RemoteProtocolError, match="larger than"):
            await read(site, "https://a.example/")
        app.answers["/"] = Response(body, headers={"content-encoding": packed, "content-type": "text/event-stream"})
        with pytest.raises(httpx2.RemoteProtocolError, match="larger than"):
            await read(site, "https://a.example/")
    assert app.headers_seen[0]["accept-encoding"] == "identity"


async def test_compressed_response_is_decompressed(app: App, tmp_path: Path) -> None:
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


async def test_requested_event_stream_may_exceed_the_size_limit(app: App, tmp_path: Path) -> None:
    async def events() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield bytes(MAX_DOCUMENT)

    async with public_site(app, tmp_path) as site, site.web.documents(local_allowed=False) as client:
        app.answers["/"] = StreamingResponse(events(), media_type="text/event-stream")
        response = await client.get("https://a.example/", headers={"accept": "text/event-stream"})
    assert len(response.content) == 3 * MAX_DOCUMENT


async def test_unresolvable_name_is_a_connection_error(app: App, tmp_path: Path) -> None:
    async with public_site(app, tmp_path) as site:
        with pytest.raises(httpx2.ConnectError, match="cannot be resolved"):
            await read(site, "https://nowhere.example/")
        site.resolver.answers["empty.example"] = [()]
        with pytest.raises(httpx2.ConnectError, match="no address"):
            await read(site, "https://empty.example/")


@pytest.mark.anyio
async def test_certificates_are_read_once_in_a_process() -> None:
    assert await (await open_web({})).ssl_context() is await (await open_web({})).ssl_context()


async def test_silent_server_and_slow_resolver_time_out(tmp_path: Path) -> None:
    silent, port = listening_socket()
    with silent:
        web = await open_web({})
        async with web.client(local_allowed=True, timeout=httpx2.Timeout(0.1)) as client:
            with pytest.raises(httpx2.ReadTimeout):
                await client.get(f"http://127.0.0.1:{port}/")

    async def slow(host: str, port: int) -> tuple[str, ...]:
        await anyio.sleep_forever()
        return ()

    async with Web(web.trust, slow).client(local_allowed=True, timeout=httpx2.Timeout(0.1)) as client:
        with pytest.raises(httpx2.ConnectTimeout):
            await client.get("https://slow.example/")


async def test_plain_http_reaches_only_this_machine(app: App) -> None:
    sock, port = listening_socket()
    async with serve_on(app, sock):
        web = await open_web({})
        async with web.client(local_allowed=True) as client:
            response = await client.get(f"http://localhost:{port}/")
            assert response.content == b"here"
            assert answered_locally(response)

        async def lies(host: str, port: int) -> tuple[str, ...]:
            return ("192.168.0.1",)

        async with Web(web.trust, lies).client(local_allowed=True) as client:
            with pytest.raises(Denied):
                await client.get(f"http://localhost:{port}/")
    assert len(app.headers_seen) == 1


async def test_proxy_and_certificate_variables_of_the_process_are_ignored(
    app: App, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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
            web = await open_web({}, site.resolver, site.sockets)
            async with web.documents(local_allowed=False) as client:
                with pytest.raises(httpx2.ConnectError, match="certificate verify failed"):
                    await get(client, "https://a.example/")
        trap.setblocking(False)
        with pytest.raises(BlockingIOError):
            trap.accept()


async def test_certificates_are_read_from_the_configured_file(app: App, tmp_path: Path) -> None:
    own = tmp_path / "own.pem"
    own.write_text(make_certificates().authority)
    async with public_site(app, tmp_path) as site:
        web = await open_web({"SSL_CERT_FILE": str(own)}, site.resolver, site.sockets)
        async with web.documents(local_allowed=False) as client:
            assert (await get(client, "https://a.example/")).status_code == 200


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
async def test_unreadable_certificate_file_is_a_setting_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=name) as raised:
        await open_web({name: str(tmp_path / "missing")})
    assert raised.value.code == "settings.invalid"


@pytest.mark.parametrize("local_allowed", [False, True])
async def test_public_server_cannot_redirect_a_sign_in_to_a_private_address(
    app: App, tmp_path: Path, local_allowed: bool
) -> None:
    """Also if the definition allows local servers, because this server is public."""
    victim, port = listening_socket()
    target = Target("lab", check_url("https://a.example/mcp", local_allowed=False), local_allowed)
    with victim:
        async with public_site(app, tmp_path) as site:
            site.resolver.answers["inside.example"] = [("10.0.0.1",)]
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
