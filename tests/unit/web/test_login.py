"""Sign-in of a browser to the console."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from toolcrib.gate.principals import Principals
from toolcrib.model.errors import Unauthenticated
from toolcrib.web import problems
from toolcrib.web.limits import Throttle
from toolcrib.web.login import CODE_SECONDS, CODES_KEPT, SESSION_SECONDS, SESSIONS_KEPT, LoginPage, Logins
from unit.clock import Clock
from unit.web.asgi import Response, request

pytestmark = pytest.mark.anyio

TOKEN = "t" * 43


def code_of(link: str) -> str:
    return link.partition("?code=")[2]


async def open_session(logins: Logins) -> str:
    return await logins.redeem(code_of(await logins.link()))


async def test_link_has_the_address_and_256_random_bits() -> None:
    logins = Logins("127.0.0.1:4242")
    links = {await logins.link() for _ in range(20)}
    assert len(links) == 20
    for link in links:
        assert link.startswith("http://127.0.0.1:4242/login?code=")
        assert len(code_of(link)) == 43


async def test_code_works_once() -> None:
    logins = Logins("127.0.0.1:4242")
    code = code_of(await logins.link())
    cookie = await logins.redeem(code)
    assert cookie != code
    assert logins.session(cookie) is not None
    with pytest.raises(Unauthenticated) as error:
        await logins.redeem(code)
    assert error.value.code == "auth.login_used"


async def test_code_expires_after_ten_minutes() -> None:
    clock = Clock()
    logins = Logins("127.0.0.1:4242", clock=clock)
    early, late = code_of(await logins.link()), code_of(await logins.link())
    clock.now += CODE_SECONDS - 1
    assert await logins.redeem(early)
    clock.now += 1
    with pytest.raises(Unauthenticated):
        await logins.redeem(late)


@pytest.mark.parametrize("code", ["", "guess", "\ud800", "x" * 10_000])
async def test_guessed_code_is_refused(code: str) -> None:
    logins = Logins("127.0.0.1:4242")
    await logins.link()
    with pytest.raises(Unauthenticated):
        await logins.redeem(code)
    assert logins.session(code) is None


async def test_code_is_not_a_cookie() -> None:
    logins = Logins("127.0.0.1:4242")
    assert logins.session(code_of(await logins.link())) is None


async def test_number_of_codes_and_sessions_is_limited_and_the_oldest_session_ends() -> None:
    logins = Logins("127.0.0.1:4242")
    oldest = code_of(await logins.link())
    for _ in range(CODES_KEPT):
        await logins.link()
    with pytest.raises(Unauthenticated):
        await logins.redeem(oldest)
    first = await open_session(logins)
    ended = logins.session(first)
    assert ended is not None
    last = first
    for _ in range(SESSIONS_KEPT):
        assert not ended.is_set()
        last = await open_session(logins)
    assert ended.is_set()
    assert logins.session(first) is None
    assert logins.session(last) is not None


async def test_browser_sessions_survive_a_restart_until_they_expire(tmp_path: Path) -> None:
    clock, file = Clock(), tmp_path / "browser-sessions"
    cookie = await open_session(Logins("127.0.0.1:4242", file=file, key=b"k", wall_clock=clock))
    assert file.stat().st_mode & 0o777 == 0o600
    assert cookie not in file.read_text()
    restarted = Logins("127.0.0.1:4242", file=file, key=b"k", wall_clock=clock)
    assert restarted.session(cookie) is not None
    clock.now += SESSION_SECONDS
    assert restarted.session(cookie) is None


async def test_new_owner_token_ends_every_browser_session(tmp_path: Path) -> None:
    file = tmp_path / "browser-sessions"
    cookie = await open_session(Logins("127.0.0.1:4242", file=file, key=b"old"))
    assert Logins("127.0.0.1:4242", file=file, key=b"new").session(cookie) is None


def test_cribs_on_one_machine_have_different_cookie_names() -> None:
    assert Logins("127.0.0.1:4242").cookie != Logins("127.0.0.1:4243").cookie
    assert Logins("[::1]:4242").cookie == "toolcrib_4242"


async def visit(
    logins: Logins,
    method: str,
    target: str,
    throttle: Throttle | None = None,
    form: Mapping[str, str] | None = None,
    cookie: str = "",
) -> Response:
    page = LoginPage(logins, throttle or Throttle(), Principals(TOKEN))
    app = Starlette(routes=[Route("/login", page.show, methods=["GET", "HEAD", "POST"])])
    problems.install(app)
    headers = [("host", "127.0.0.1:4242"), ("content-type", "application/x-www-form-urlencoded"), ("cookie", cookie)]
    return await request(app, method, target, headers, [urlencode(form or {}).encode()])


async def test_login_sets_a_protected_cookie_and_redirects_to_the_console() -> None:
    logins = Logins("127.0.0.1:4242")
    response = await visit(logins, "GET", f"/login?code={code_of(await logins.link())}")
    assert response.status == 303
    assert response.header("location") == "/"
    name, _, rest = (response.header("set-cookie") or "").partition("=")
    value, *attributes = rest.split("; ")
    assert name == "toolcrib_4242"
    assert logins.session(value) is not None
    assert {attribute.lower() for attribute in attributes} == {
        "httponly",
        "path=/",
        "samesite=strict",
        f"max-age={SESSION_SECONDS}",
    }


async def test_used_link_is_refused_and_sets_no_cookie() -> None:
    logins = Logins("127.0.0.1:4242")
    target = f"/login?code={code_of(await logins.link())}"
    await visit(logins, "GET", target)
    response = await visit(logins, "GET", target)
    assert response.status == 401
    assert "was already used or has expired" in response.body.decode()
    assert response.header("set-cookie") is None


async def test_used_link_opens_the_console_in_a_browser_that_is_signed_in() -> None:
    logins = Logins("127.0.0.1:4242")
    value = await open_session(logins)
    response = await visit(logins, "GET", "/login?code=used", cookie=f"{logins.cookie}={value}")
    assert (response.status, response.header("location"), response.header("set-cookie")) == (303, "/", None)
    assert (await visit(logins, "GET", "/login?code=used", cookie=f"{logins.cookie}=other")).status == 401


async def test_head_request_does_not_use_up_the_link() -> None:
    logins = Logins("127.0.0.1:4242")
    target = f"/login?code={code_of(await logins.link())}"
    assert (await visit(logins, "HEAD", target)).status == 405
    assert (await visit(logins, "GET", target)).status == 303


async def test_guessing_links_is_throttled() -> None:
    logins, throttle = Logins("127.0.0.1:4242"), Throttle(allowed=2)
    statuses = [(await visit(logins, "GET", "/login?code=x", throttle)).status for _ in range(4)]
    assert statuses == [401, 401, 429, 429]
    assert (await visit(logins, "GET", f"/login?code={code_of(await logins.link())}", throttle)).status == 303


async def test_sign_in_page_names_the_command_and_accepts_the_owner_token() -> None:
    logins = Logins("127.0.0.1:4242")
    page = await visit(logins, "GET", "/login")
    assert page.status == 200
    assert "<code>toolcrib open</code>" in page.body.decode()
    response = await visit(logins, "POST", "/login", form={"token": f" {TOKEN}\n", "next": "/servers/time?tab=log"})
    assert (response.status, response.header("location")) == (303, "/servers/time?tab=log")
    cookie = (response.header("set-cookie") or "").partition("=")[2].partition(";")[0]
    assert logins.session(cookie) is not None


async def test_wrong_token_is_refused_and_throttled() -> None:
    logins, throttle = Logins("127.0.0.1:4242"), Throttle(allowed=1)
    responses = [await visit(logins, "POST", "/login", throttle, {"token": "guess"}) for _ in range(2)]
    assert [response.status for response in responses] == [401, 429]
    assert "This is not the owner&#x27;s token." in responses[0].body.decode()
    assert responses[0].header("set-cookie") is None


@pytest.mark.parametrize("target", ["//elsewhere.example", "https://elsewhere.example", "/\\elsewhere", "/a\r\nb", ""])
async def test_sign_in_never_redirects_to_another_site(target: str) -> None:
    response = await visit(Logins("127.0.0.1:4242"), "POST", "/login", form={"token": TOKEN, "next": target})
    assert response.header("location") == "/"
