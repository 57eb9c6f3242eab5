"""The way of a browser into the console."""

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from toolcrib.model.errors import Unauthenticated
from toolcrib.web import problems
from toolcrib.web.limits import Throttle
from toolcrib.web.login import CODE_SECONDS, CODES_KEPT, SESSIONS_KEPT, LoginPage, Logins
from unit.web.asgi import Answer, ask

pytestmark = pytest.mark.anyio


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def code_of(link: str) -> str:
    return link.partition("?code=")[2]


def open_session(logins: Logins) -> str:
    return logins.redeem(code_of(logins.link()))


def test_a_link_names_the_address_and_carries_256_random_bits() -> None:
    logins = Logins("127.0.0.1:4242")
    links = {logins.link() for _ in range(20)}
    assert len(links) == 20
    for link in links:
        assert link.startswith("http://127.0.0.1:4242/login?code=")
        assert len(code_of(link)) == 43


def test_a_code_works_once() -> None:
    logins = Logins("127.0.0.1:4242")
    code = code_of(logins.link())
    cookie = logins.redeem(code)
    assert cookie != code
    assert logins.session(cookie) is not None
    with pytest.raises(Unauthenticated) as refused:
        logins.redeem(code)
    assert refused.value.code == "auth.login_used"


def test_a_code_works_for_ten_minutes_only() -> None:
    clock = Clock()
    logins = Logins("127.0.0.1:4242", clock=clock)
    early, late = code_of(logins.link()), code_of(logins.link())
    clock.now += CODE_SECONDS - 1
    assert logins.redeem(early)
    clock.now += 1
    with pytest.raises(Unauthenticated):
        logins.redeem(late)


@pytest.mark.parametrize("code", ["", "guess", "\ud800", "x" * 10_000])
def test_a_guess_is_refused(code: str) -> None:
    logins = Logins("127.0.0.1:4242")
    logins.link()
    with pytest.raises(Unauthenticated):
        logins.redeem(code)
    assert logins.session(code) is None


def test_a_code_is_no_cookie() -> None:
    logins = Logins("127.0.0.1:4242")
    assert logins.session(code_of(logins.link())) is None


def test_only_so_many_codes_and_sessions_are_kept_and_the_oldest_session_is_told_its_end() -> None:
    logins = Logins("127.0.0.1:4242")
    oldest = code_of(logins.link())
    for _ in range(CODES_KEPT):
        logins.link()
    with pytest.raises(Unauthenticated):
        logins.redeem(oldest)
    first = open_session(logins)
    ended = logins.session(first)
    assert ended is not None
    last = first
    for _ in range(SESSIONS_KEPT):
        assert not ended.is_set()
        last = open_session(logins)
    assert ended.is_set()
    assert logins.session(first) is None
    assert logins.session(last) is not None


def test_two_cribs_on_one_machine_have_cookies_of_different_names() -> None:
    assert Logins("127.0.0.1:4242").cookie != Logins("127.0.0.1:4243").cookie
    assert Logins("[::1]:4242").cookie == "toolcrib_4242"


async def visit(logins: Logins, method: str, target: str, throttle: Throttle | None = None) -> Answer:
    page = LoginPage(logins, throttle or Throttle())
    app = Starlette(routes=[Route("/login", page.show)])
    problems.install(app)
    return await ask(app, method, target, [("host", "127.0.0.1:4242")])


async def test_the_page_sets_a_cookie_that_scripts_and_other_sites_cannot_use_and_goes_home() -> None:
    logins = Logins("127.0.0.1:4242")
    answer = await visit(logins, "GET", f"/login?code={code_of(logins.link())}")
    assert answer.status == 303
    assert answer.header("location") == "/"
    name, _, rest = (answer.header("set-cookie") or "").partition("=")
    value, *attributes = rest.split("; ")
    assert name == "toolcrib_4242"
    assert logins.session(value) is not None
    assert {attribute.lower() for attribute in attributes} == {"httponly", "path=/", "samesite=strict"}


async def test_a_used_link_says_so_and_sets_nothing() -> None:
    logins = Logins("127.0.0.1:4242")
    target = f"/login?code={code_of(logins.link())}"
    await visit(logins, "GET", target)
    answer = await visit(logins, "GET", target)
    assert answer.status == 401
    assert "used already or is too old" in answer.body.decode()
    assert answer.header("set-cookie") is None


async def test_looking_ahead_does_not_use_the_link_up() -> None:
    logins = Logins("127.0.0.1:4242")
    target = f"/login?code={code_of(logins.link())}"
    assert (await visit(logins, "HEAD", target)).status == 405
    assert (await visit(logins, "GET", target)).status == 303


async def test_guessing_links_is_braked() -> None:
    logins, throttle = Logins("127.0.0.1:4242"), Throttle(allowed=2)
    statuses = [(await visit(logins, "GET", "/login?code=x", throttle)).status for _ in range(4)]
    assert statuses == [401, 401, 429, 429]
    assert (await visit(logins, "GET", f"/login?code={code_of(logins.link())}", throttle)).status == 303
