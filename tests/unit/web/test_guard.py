"""The request guard: what it refuses, what it accepts, and as which principal."""

import asyncio
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import anyio
import orjson
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deadlines import stretched
from toolcrib.base.stop_switch import StopSwitch
from toolcrib.gate.principals import Credential, Principals
from toolcrib.model.errors import Conflict
from toolcrib.web.guard import RequestGuard
from toolcrib.web.limits import PRINCIPAL, Throttle
from toolcrib.web.login import Logins
from unit.web.asgi import Response, request, scope_of

pytestmark = pytest.mark.anyio

ADDRESS = "127.0.0.1:4242"
HOSTS = (ADDRESS, "localhost:4242", "[::1]:4242")
TOKEN = "t" * 43
HOST = ("host", ADDRESS)
BEARER = ("authorization", f"Bearer {TOKEN}")
CORPUS = os.environ.get("TOOLCRIB_CORPUS")


class InnerApp:
    """An application behind the guard; it returns its name and the principal, and counts its calls."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.calls += 1
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                break
            body += message["body"]
            if not message["more_body"]:
                break
        principal = scope.get(PRINCIPAL)
        info = {"door": self.name, "principal": principal and principal.to_json(), "size": len(body)}
        if principal:
            info["byHand"] = principal.by_hand
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": orjson.dumps(info)})


class Guarded:
    """A guard in front of both inner applications."""

    def __init__(self, *, principals: Principals | None = None, body_bytes: int = 1000) -> None:
        self.mcp = InnerApp("mcp")
        self.routes = InnerApp("routes")
        self.logins = Logins(ADDRESS)
        self.now = 0.0
        self.guard = RequestGuard(
            mcp=self.mcp,
            routes=self.routes,
            principals=principals or Principals(TOKEN),
            logins=self.logins,
            throttle=Throttle(clock=lambda: self.now),
            stop_switch=StopSwitch(Path("/nowhere/stopped")),
            address=ADDRESS,
            hosts=HOSTS,
            body_bytes=body_bytes,
        )

    @property
    def entered(self) -> int:
        return self.mcp.calls + self.routes.calls

    async def request(
        self, method: str, target: str, *headers: tuple[str, str], body: Sequence[bytes] = (b"",)
    ) -> Response:
        return await request(self.guard, method, target, headers, body)

    async def cookie(self) -> tuple[str, str]:
        value = await self.logins.redeem((await self.logins.link()).partition("code=")[2])
        return ("cookie", f"other=1; {self.logins.cookie}={value}; [odd]=2")


def guard_of(app: ASGIApp) -> RequestGuard:
    """Return a guard with the same application behind both entry points."""
    return RequestGuard(
        mcp=app,
        routes=app,
        principals=Principals(TOKEN),
        logins=Logins(ADDRESS),
        throttle=Throttle(),
        stop_switch=StopSwitch(Path("/nowhere/stopped")),
        address=ADDRESS,
        hosts=HOSTS,
        body_bytes=1000,
    )


@pytest.fixture
def guarded() -> Guarded:
    return Guarded()


@pytest.mark.parametrize("path", ["/healthz", "/login"])
async def test_open_paths_need_no_credential(guarded: Guarded, path: str) -> None:
    response = await guarded.request("GET", path, HOST)
    assert response.status == 200
    assert response.json()["principal"] is None


@pytest.mark.parametrize(
    "path",
    [
        "/", "/api/tools", "/api/openapi.json", "/mcp", "/mcp/servers/x", "/static/console.css", "/nowhere",
        "/healthz/", "/healthz/x", "/HEALTHZ", "/healthz.", "//healthz", "/healthz;x", "/x/../healthz", "/login/",
        "/healthz\0", "/healthz ", "healthz", "", "/mcp/../healthz",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE"])
async def test_other_paths_return_401_without_a_credential(guarded: Guarded, method: str, path: str) -> None:
    response = await guarded.request(method, path, HOST)
    assert response.status == 401
    assert response.code == "auth.required"
    assert response.header("www-authenticate") == 'Bearer realm="toolcrib"'
    assert guarded.entered == 0


@pytest.mark.parametrize(
    ("path", "door", "source", "mode", "by_hand"),
    [
        ("/mcp", "mcp", "ide", "acceptEdits", False),
        ("/mcp/agents/x", "mcp", "ide", "acceptEdits", False),
        ("/mcpx", "routes", "api", "default", True),
        ("/api/tools", "routes", "api", "default", True),
    ],
)
async def test_token_authenticates_the_owner_at_every_entry_point(
    guarded: Guarded, path: str, door: str, source: str, mode: str, by_hand: bool
) -> None:
    info = (await guarded.request("POST", path, HOST, BEARER)).json()
    assert info["door"] == door
    assert info["principal"] == {"kind": "owner", "name": "owner", "source": source, "mode": mode}
    assert info["byHand"] is by_hand


@pytest.mark.parametrize(
    "authorization",
    [
        f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer", "Bearer ", "", f"Basic {TOKEN}", TOKEN,
        f"Bearer\t{TOKEN}", f"Bearer {TOKEN} {TOKEN}", f"Bearer {TOKEN},", "Bearer \xff\xfe", f"Bearer {TOKEN.upper()}",
        f'Bearer "{TOKEN}"',
    ],
)  # fmt: skip
async def test_wrong_token_is_refused_despite_a_valid_cookie(guarded: Guarded, authorization: str) -> None:
    response = await guarded.request(
        "GET", "/api/tools", HOST, ("authorization", authorization), await guarded.cookie()
    )
    assert (response.status, response.code) == (401, "auth.invalid")
    assert TOKEN not in response.body.decode()
    assert guarded.entered == 0


async def test_scheme_of_the_token_is_case_insensitive(guarded: Guarded) -> None:
    assert (await guarded.request("GET", "/", HOST, ("authorization", f"bEARER  {TOKEN}"))).status == 200


async def test_token_in_the_url_is_ignored(guarded: Guarded) -> None:
    assert (await guarded.request("GET", f"/api/tools?token={TOKEN}&access_token={TOKEN}", HOST)).status == 401


async def test_cookie_authenticates_the_owner_in_the_console_only(guarded: Guarded) -> None:
    cookie = await guarded.cookie()
    info = (await guarded.request("GET", "/", HOST, cookie)).json()
    assert info["principal"] == {"kind": "owner", "name": "owner", "source": "web", "mode": "default"}
    assert info["byHand"] is True
    assert (await guarded.request("GET", "/mcp", HOST, cookie)).status == 401


async def test_unknown_or_malformed_cookie_is_not_a_credential(guarded: Guarded) -> None:
    name = guarded.logins.cookie
    for value in (f"{name}=guess", f"{name}=", name, "=;;=", "\xff", f"{name}x=1"):
        assert (await guarded.request("GET", "/", HOST, ("cookie", value))).status == 401


async def test_cookie_changes_something_only_with_proof_of_the_same_origin(guarded: Guarded) -> None:
    cookie = await guarded.cookie()
    for proof, status in [
        ([], 403),
        ([("content-type", "application/json")], 403),
        ([("sec-fetch-site", "none")], 403),
        ([("origin", f"http://{ADDRESS}")], 200),
        ([("sec-fetch-site", "same-origin")], 200),
        ([("sec-fetch-site", "same-site")], 403),
        ([("sec-fetch-site", "cross-site"), ("origin", f"http://{ADDRESS}")], 403),
    ]:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert (await guarded.request(method, "/api/x", HOST, cookie, *proof)).status == status, proof


@pytest.mark.parametrize(
    "hosts",
    [
        [], [""], ["evil.example"], ["evil.example:4242"], ["127.0.0.1.evil.example:4242"], ["localhost"],
        ["127.0.0.1"], ["localhost:4243"], ["localhost:4242/x"], ["localhost:4242#@evil.example"],
        ["localhost.:4242"], ["127.0.0.1:4242@evil.example"], ["0.0.0.0:4242"],
        ["localhost:4242, evil.example"], ["xn--lcalhost-54a:4242"],
        [ADDRESS, ADDRESS], [ADDRESS, "evil.example"], ["evil.example", ADDRESS], [" " + ADDRESS], ["127.1:4242"],
        ["2130706433:4242"], ["[::ffff:127.0.0.1]:4242"], ["::1:4242"],
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/healthz", "/login", "/", "/api/events", "/mcp", "/static/console.css"])
async def test_foreign_host_is_refused_on_any_path(guarded: Guarded, hosts: list[str], path: str) -> None:
    response = await guarded.request("GET", path, *[("host", host) for host in hosts], BEARER)
    assert (response.status, response.code) == (403, "host.refused")
    assert guarded.entered == 0


@pytest.mark.parametrize("host", [*HOSTS, "LOCALHOST:4242", "LocalHost:4242"])
async def test_own_host_is_accepted_in_any_case(guarded: Guarded, host: str) -> None:
    assert (await guarded.request("GET", "/healthz", ("host", host))).status == 200


@pytest.mark.parametrize(
    "origin",
    [
        "null", "", "http://localhost", "https://localhost:4242", "http://localhost.evil.example:4242",
        "http://evil.example", "http://localhost:4242.evil.example", "vscode-webview://abc", "chrome-extension://abcdef",
        "file://", "http://localhost:4242/", "http://user@localhost:4242", "http://LOCALHOST:4242", "http://localhost:4243",
        "http://localhost:4242, http://evil.example", "*",
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/healthz", "/login", "/", "/api/tools", "/mcp"])
async def test_foreign_origin_is_refused_despite_a_valid_token(guarded: Guarded, origin: str, path: str) -> None:
    response = await guarded.request("POST", path, HOST, BEARER, ("origin", origin))
    assert (response.status, response.code) == (403, "origin.refused")
    assert guarded.entered == 0


@pytest.mark.parametrize("origin", [f"http://{host}" for host in HOSTS])
async def test_own_origin_is_accepted(guarded: Guarded, origin: str) -> None:
    assert (await guarded.request("POST", "/mcp", HOST, BEARER, ("origin", origin))).status == 200


@pytest.mark.parametrize(
    ("site", "status"),
    [("none", 200), ("same-origin", 200), ("same-site", 403), ("cross-site", 403), ("", 403), ("Cross-Site", 403)],
)
async def test_link_on_another_site_does_not_reach_the_login(guarded: Guarded, site: str, status: int) -> None:
    response = await guarded.request(
        "GET", "/login?code=x", HOST, ("sec-fetch-site", site), ("sec-fetch-mode", "navigate")
    )
    assert response.status == status


PAGE = ("accept", "text/html,*/*")


@pytest.mark.parametrize("host", ["localhost:4242", "[::1]:4242", "LocalHost:4242"])
async def test_browser_at_another_name_of_the_crib_is_redirected_to_its_address(guarded: Guarded, host: str) -> None:
    response = await guarded.request("GET", "/login?code=x", ("host", host), PAGE)
    assert (response.status, response.header("location")) == (302, f"http://{ADDRESS}/login?code=x")
    assert guarded.entered == 0


@pytest.mark.parametrize(("method", "path"), [("GET", "/api/tools"), ("POST", "/login"), ("GET", "/mcp")])
async def test_programs_and_forms_are_not_redirected(guarded: Guarded, method: str, path: str) -> None:
    assert (await guarded.request(method, path, ("host", "localhost:4242"), PAGE, BEARER)).status == 200


async def test_link_on_another_site_opens_a_page_with_one_button(guarded: Guarded) -> None:
    navigation = (("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document"))
    response = await guarded.request("GET", '/servers?x="><b', HOST, PAGE, await guarded.cookie(), *navigation)
    assert response.status == 200
    assert 'href="/servers?x=&quot;&gt;&lt;b">Continue</a>' in response.body.decode()
    assert guarded.entered == 0
    framed = (*navigation[:2], ("sec-fetch-dest", "iframe"))
    assert (await guarded.request("GET", "/servers", HOST, PAGE, *framed)).status == 403
    elsewhere = await guarded.request("GET", "//elsewhere.example/", HOST, PAGE, *navigation)
    assert 'href="/">' in elsewhere.body.decode()


async def test_response_never_allows_reading_by_another_site(guarded: Guarded) -> None:
    preflight = [("access-control-request-method", "POST"), ("access-control-request-headers", "authorization")]
    for origin in ("http://evil.example", f"http://{ADDRESS}"):
        for credential in ([], [BEARER]):
            response = await guarded.request("OPTIONS", "/api/tools", HOST, ("origin", origin), *preflight, *credential)
            assert not [name for name, _ in response.headers if name.startswith("access-control")]
            assert response.status in ((403,) if "evil" in origin else (200, 401))


@pytest.mark.parametrize(
    "name", ["origin", "authorization", "cookie", "content-length", "content-type", "sec-fetch-site"]
)
async def test_security_header_must_not_be_repeated(guarded: Guarded, name: str) -> None:
    response = await guarded.request("POST", "/mcp", HOST, (name, "1"), (name, "1"))
    assert (response.status, response.code) == (400, "request.malformed")


async def test_other_headers_may_be_repeated(guarded: Guarded) -> None:
    assert (await guarded.request("GET", "/mcp", HOST, BEARER, ("accept", "a"), ("accept", "b"))).status == 200


async def test_body_with_a_too_large_declared_length_is_refused_unread(guarded: Guarded) -> None:
    for length, status in (("1000", 200), ("1001", 413), ("9" * 30, 413), ("-1", 400), ("1e3", 400), ("", 400)):
        response = await guarded.request("POST", "/mcp", HOST, BEARER, ("content-length", length))
        assert response.status == status, length
    assert guarded.entered == 1


async def test_body_of_unknown_length_is_limited_while_it_is_read(guarded: Guarded) -> None:
    chunked = ("transfer-encoding", "chunked")
    fits = await guarded.request("POST", "/mcp", HOST, BEARER, chunked, body=[b"a" * 500] * 2)
    assert fits.json()["size"] == 1000
    response = await guarded.request("POST", "/mcp", HOST, BEARER, chunked, body=[b"a" * 500] * 3)
    assert (response.status, response.code) == (413, "request.too_large")


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "zstd", "gzip, identity", ""])
async def test_compressed_body_is_refused(guarded: Guarded, encoding: str) -> None:
    response = await guarded.request("POST", "/mcp", HOST, BEARER, ("content-encoding", encoding))
    assert (response.status, response.code) == (415, "request.media_type")


async def test_wrong_tokens_are_throttled_and_the_right_one_still_works(guarded: Guarded) -> None:
    wrong = ("authorization", "Bearer wrong")
    assert [(await guarded.request("GET", "/mcp", HOST, wrong)).status for _ in range(25)] == [401] * 20 + [429] * 5
    assert (await guarded.request("GET", "/mcp", HOST, wrong)).header("retry-after") == "60"
    assert (await guarded.request("GET", "/mcp", HOST, BEARER)).status == 200
    elsewhere = await request(guarded.guard, "GET", "/mcp", [HOST, wrong], client="127.0.0.2")
    assert elsewhere.status == 401
    guarded.now = 61.0
    assert (await guarded.request("GET", "/mcp", HOST, wrong)).status == 401


async def test_each_response_has_security_headers_and_pages_have_a_policy(guarded: Guarded) -> None:
    for path, headers in itertools.product(["/healthz", "/", "/mcp", "/api/tools"], ([], [BEARER])):
        response = await guarded.request("GET", path, HOST, *headers)
        assert response.header("x-content-type-options") == "nosniff"
        for_programs = path in ("/mcp", "/api/tools")
        assert response.header("referrer-policy") == ("no-referrer" if for_programs else "same-origin")
        assert response.header("cache-control") == "no-store"
    policy = (await guarded.request("GET", "/", HOST)).header("content-security-policy")
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


async def test_browser_without_a_login_gets_the_sign_in_page(guarded: Guarded) -> None:
    response = await guarded.request("GET", "/", HOST, ("accept", "text/html,*/*"))
    assert response.status == 401
    assert response.header("content-type") == "text/html; charset=utf-8"
    assert b"<h1>Sign in</h1>" in response.body
    assert (await guarded.request("GET", "/api/tools", HOST, ("accept", "text/html"))).code == "auth.required"


class FixedPrincipals(Principals):
    """Principals whose authentication returns or raises this value."""

    def __init__(self, result: Any) -> None:
        super().__init__(TOKEN)
        self._result = result

    def authenticate(self, bearer: bytes, source: Literal["ide", "api", "cli", "web"] = "api") -> Credential | None:
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


@pytest.mark.parametrize("result", [None, 1, "yes", False, ValueError("secret detail"), TimeoutError(), KeyError("x")])
async def test_failing_authentication_refuses_the_request(result: Any) -> None:
    guarded = Guarded(principals=FixedPrincipals(result))
    for path in ("/", "/api/tools", "/mcp"):
        refused = await guarded.request("GET", path, HOST, BEARER)
        assert refused.status == (500 if isinstance(result, Exception) else 401)
        assert "secret" not in refused.body.decode()
    assert guarded.entered == 0


async def test_failure_behind_the_guard_is_logged_once_and_reported_by_number(caplog: pytest.LogCaptureFixture) -> None:
    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("secret detail")

    response = await request(guard_of(failing), "GET", "/mcp", [HOST, BEARER])
    assert (response.status, response.code) == (500, "internal")
    assert "secret" not in response.body.decode()
    [record] = [record for record in caplog.records if record.levelname == "ERROR"]
    number = record.getMessage().rpartition(" ")[2]
    assert number in str(response.json()["detail"])


async def test_deliberate_failure_behind_the_guard_keeps_its_code() -> None:
    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        raise Conflict("tool.server_exists", "It exists already.")

    response = await request(guard_of(failing), "GET", "/mcp", [HOST, BEARER])
    assert (response.status, response.code) == (409, "tool.server_exists")


async def test_request_cancelled_by_the_end_of_the_server_gets_a_response() -> None:
    started = anyio.Event()
    sent: list[Message] = []

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        started.set()
        await anyio.sleep_forever()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    task = asyncio.create_task(guard_of(endless)(scope_of("GET", "/mcp", [HOST, BEARER]), receive, send))
    await started.wait()
    task.cancel()
    await asyncio.wait([task], timeout=stretched(5))
    assert sent[0]["status"] == 503
    assert orjson.loads(sent[1]["body"])["code"] == "crib.closed"


async def test_websocket_is_closed(guarded: Guarded) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await guarded.guard({"type": "websocket", "path": "/mcp", "headers": []}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]
    assert guarded.entered == 0


@pytest.mark.skipif(not CORPUS, reason="TOOLCRIB_CORPUS is not set")
async def test_corpus_of_hosts_origins_and_fetch_metadata_is_decided_correctly() -> None:
    matrix = json.loads((Path(str(CORPUS)) / "own-vectors" / "host-origin-matrix.json").read_text(encoding="utf-8"))
    guarded = Guarded()
    own_hosts = {"127.0.0.1:4242", "localhost:4242", "[::1]:4242"}
    cases = 0
    for host, origin, site, method in itertools.product(
        matrix["hosts"], matrix["origins"], matrix["sec_fetch_site"], matrix["methods"]
    ):
        host = host.replace("PORT", "4242")
        headers = [("host", host), BEARER]
        if origin is not None:
            headers.append(("origin", origin.replace("PORT", "4242")))
        if site is not None:
            headers.append(("sec-fetch-site", site))
        good_origin = origin is None or origin.replace("PORT", "4242").removeprefix("http://") in own_hosts
        good = host.lower() in own_hosts and good_origin and site not in ("cross-site", "same-site")
        response = await request(guarded.guard, method, "/mcp", headers)
        assert response.status == (200 if good else 403), headers
        cases += 1
    assert cases == 17 * 16 * 5 * 5
