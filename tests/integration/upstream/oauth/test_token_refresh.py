"""Using a sign-in: many callers, several processes, issuers and servers that fail, and nobody who asks for ever."""

import json
import logging
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from mcp.server.auth.provider import AccessToken
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from integration.upstream.oauth.authority import (
    Authority,
    authority,
    complete,
    credentials_in,
    listening_socket,
    serve_on,
    shared_web,
    target,
)
from lab import eventually
from toolcrib.base.network.urls import check_url
from toolcrib.base.network.web import Web
from toolcrib.model.errors import Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.upstream.credentials import CredentialStore, OAuthCredential
from toolcrib.upstream.http.client import HttpClient, HttpTimeouts
from toolcrib.upstream.http.requests import Requests
from toolcrib.upstream.http.responses import HttpCall, RequestRefused
from toolcrib.upstream.oauth.sign_in import signing_in
from toolcrib.upstream.oauth.token_refresh import Bearer

pytestmark = pytest.mark.anyio

RENEWER = Path(__file__).with_name("renewer.py")


class Desk:
    """A signed-in server, and what is needed to use it."""

    def __init__(self, site: Authority, web: Web, tokens: CredentialStore, credential: OAuthCredential) -> None:
        self.site = site
        self.web = web
        self.tokens = tokens
        self.credential = credential
        self.now = 0.0
        self.bearer = self.another()

    def another(self) -> Bearer:
        """One more user of the same sign-in, with a clock that a test sets."""
        return Bearer(
            self.web,
            self.tokens,
            "lab",
            check_url(self.site.resource, local_allowed=True),
            now=lambda: self.credential.obtained_at + self.now,
            clock=lambda: self.now,
        )

    @asynccontextmanager
    async def requests(self, bearer: Bearer | None = None, url: str | None = None) -> AsyncGenerator[Requests]:
        """Requests to the server, or to another address, with the sign-in."""
        checked = check_url(url or self.site.resource, local_allowed=True)
        async with HttpClient(self.web, checked, local_allowed=True, timeouts=HttpTimeouts()) as client:
            yield Requests(client, _nothing_comes, checked, {}, bearer or self.bearer)

    async def call(self, bearer: Bearer | None = None, url: str | None = None) -> int:
        async with self.requests(bearer, url) as requests:
            with anyio.fail_after(10):
                return await _status(requests)

    async def calls(self, count: int) -> list[int]:
        """So many calls at once."""
        answers: list[int] = []
        async with self.requests() as requests:

            async def one() -> None:
                answers.append(await _status(requests))

            with anyio.fail_after(20):
                async with anyio.create_task_group() as tasks:
                    for _ in range(count):
                        tasks.start_soon(one)
        return answers

    async def stored(self) -> OAuthCredential | None:
        return await self.tokens.credential("lab", self.site.resource)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncGenerator[Desk]:
    web, tokens = shared_web(), credentials_in(tmp_path)
    async with authority() as site:
        async with signing_in(web, tokens, target(site)) as attempt:
            credential = await complete(attempt)
        site.authorizations.clear()
        site.forms.clear()
        yield Desk(site, web, tokens, credential)


async def test_the_token_is_shown_to_the_server(desk: Desk) -> None:
    assert await desk.call() == 200
    assert desk.site.authorizations == [f"Bearer {desk.credential.access_token}"]
    assert await desk.bearer.access_token() == desk.credential.access_token


async def test_a_hundred_calls_on_an_expired_token_renew_it_once(desk: Desk) -> None:
    desk.now = 4000.0
    desk.site.provider.access.clear()
    assert await desk.calls(100) == [200] * 100
    assert desk.site.provider.refreshes == 1
    assert len(desk.site.authorizations) == 100
    assert desk.site.forms[0]["resource"] == desk.site.resource
    assert (await desk.stored() or desk.credential).access_token != desk.credential.access_token


async def test_a_hundred_refusals_of_one_token_renew_it_once(desk: Desk) -> None:
    desk.site.provider.access.clear()
    assert await desk.calls(100) == [200] * 100
    assert desk.site.provider.refreshes == 1
    assert len(desk.site.authorizations) <= 200


@pytest.mark.parametrize("answer", [(400, b'{"error": "invalid_grant"}'), (500, b""), (200, b"[]"), (429, b"{}")])
async def test_a_renewal_that_fails_is_tried_once_for_all(desk: Desk, answer: tuple[int, bytes]) -> None:
    desk.site.provider.access.clear()
    desk.site.token_answer = answer
    assert await desk.calls(30) == [401] * 30
    assert len(desk.site.forms) == 1
    assert len(desk.site.authorizations) == 30
    problem = desk.bearer.problem
    assert problem is not None
    if answer[0] == 400:
        assert problem.code == "oauth.required"
        assert problem.message == 'Authentication required for "lab".'
        assert problem.hint == "Run `toolcrib mcp auth lab`."
    else:
        assert problem.message.startswith("OAuth authentication failed: the token could not be refreshed: ")


async def test_what_an_issuer_refused_is_not_asked_for_after_a_restart(desk: Desk) -> None:
    desk.site.provider.access.clear()
    desk.site.token_answer = (400, b'{"error": "invalid_grant"}')
    assert await desk.call() == 401
    assert await desk.call(desk.another()) == 401
    assert len(desk.site.forms) == 1


async def test_an_issuer_that_was_away_is_asked_again_later(desk: Desk) -> None:
    desk.site.provider.access.clear()
    desk.site.token_answer = (503, b"")
    assert await desk.call() == 401
    assert (await desk.stored()) == desk.credential
    desk.site.token_answer = None
    assert await desk.call() == 401
    desk.now += 6
    assert await desk.call() == 200
    assert desk.bearer.problem is None
    assert len(desk.site.forms) == 2


async def test_a_caller_who_leaves_does_not_break_off_a_renewal(desk: Desk) -> None:
    desk.now = 4000.0
    desk.site.token_hangs = anyio.Event()
    with anyio.fail_after(15):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(desk.call)
            await eventually(lambda: bool(desk.site.forms))
            tasks.cancel_scope.cancel()
            desk.site.token_hangs.set()
    stored = await desk.stored()
    assert stored is not None
    assert stored.access_token != desk.credential.access_token
    assert await desk.call() == 200
    assert desk.site.provider.refreshes == 1


async def test_a_new_token_that_is_refused_too_is_not_renewed_again(desk: Desk) -> None:
    desk.site.provider.access = _Empty()
    for _ in range(5):
        assert await desk.call() == 401
    assert desk.site.provider.refreshes == 1
    assert len(desk.site.authorizations) == 6
    assert desk.bearer.problem is not None
    assert desk.bearer.problem.code == "oauth.required"


async def test_a_sign_in_of_another_is_found_after_a_refusal(desk: Desk) -> None:
    await desk.tokens.forget("lab")
    assert await desk.call() == 401
    with pytest.raises(Unavailable, match='Authentication required for "lab"'):
        await desk.bearer.access_token()
    await desk.tokens.keep(desk.credential)
    assert await desk.call() == 200
    assert desk.bearer.problem is None


async def test_what_another_process_renewed_is_used_and_not_renewed_again(desk: Desk) -> None:
    other = desk.another()
    assert [await desk.call(), await desk.call(other)] == [200, 200]
    desk.site.provider.access.clear()
    assert [await desk.call(), await desk.call(other)] == [200, 200]
    assert desk.site.provider.refreshes == 1


async def test_a_renewed_token_that_cannot_be_stored_is_used_all_the_same(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    desk.site.provider.access.clear()
    monkeypatch.setattr(os, "fsync", full)
    assert await desk.calls(20) == [200] * 20
    assert desk.site.provider.refreshes == 1
    assert await desk.stored() == desk.credential
    assert "Could not store" in caplog.text


async def test_a_sign_in_that_ended_is_no_longer_shown(desk: Desk) -> None:
    assert await desk.call() == 200
    await desk.tokens.forget("lab")
    await desk.bearer.reload()
    assert await desk.call() == 401
    assert desk.site.authorizations[-1] is None


async def test_another_origin_never_sees_the_token(desk: Desk) -> None:
    async with authority() as other:
        assert await desk.call(url=other.resource) == 401
        assert other.authorizations == [None]
    assert await desk.call(url=f"{desk.site.url.replace('127.0.0.1', 'localhost')}/mcp") == 401
    assert desk.site.authorizations == [None]


async def test_more_rights_are_asked_for_a_few_times_and_never_twice(desk: Desk) -> None:
    desk.site.needs.append("write")
    for _ in range(3):
        assert await desk.call() == 403
    assert desk.site.provider.refreshes == 0
    assert len(desk.site.authorizations) == 3


async def test_a_wish_for_scopes_leads_to_a_sign_in_that_has_them(desk: Desk) -> None:
    async with _wishing(desk, "write") as url:
        bearer = Bearer(desk.web, desk.tokens, "wish", check_url(url, local_allowed=True))
        wish = replace(desk.credential, server="wish", resource=url)
        await desk.tokens.keep(wish)
        assert await desk.call(bearer, url) == 403
        assert bearer.demand.scopes == ("read", "write")
        assert bearer.problem is not None
        assert bearer.problem.message == 'Authentication required for "wish": it requires the scopes read write.'
        more = replace(wish, access_token="more", asked=bearer.demand.scopes)
        await desk.tokens.keep(more)
        assert await desk.call(bearer, url) == 403  # signed in anew, and still not granted
        assert bearer.problem.code == "oauth.required"
        assert await desk.call(bearer, url) == 403
        assert "did not grant" in bearer.problem.message


async def test_two_processes_that_renew_one_rotating_token_both_stay_signed_in(desk: Desk, tmp_path: Path) -> None:
    rounds = 25
    command = [sys.executable, str(RENEWER), str(tmp_path / "oauth"), desk.site.resource, str(rounds)]
    outputs: list[bytes] = []

    async def one() -> None:
        outputs.append((await anyio.run_process(command)).stdout)

    with anyio.fail_after(40):
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(one)
    assert [json.loads(output) for output in outputs] == [[200] * rounds] * 2
    assert desk.site.provider.thefts == 0
    assert desk.site.provider.refreshes > rounds
    stored = await desk.stored()
    assert stored is not None
    assert not desk.site.provider.refresh[stored.refresh_token or ""].spent


@pytest.mark.parametrize("expires_in", [b"", b', "expires_in": 0', b', "expires_in": -5', b', "expires_in": "soon"'])
async def test_a_life_that_makes_no_sense_does_not_make_a_token_old(desk: Desk, expires_in: bytes) -> None:
    desk.now = 4000.0
    desk.site.token_answer = (200, b'{"access_token": "strange", "token_type": "Bearer"' + expires_in + b"}")
    for _ in range(3):
        assert await desk.call() == 401
    assert desk.site.authorizations[0] == "Bearer strange"
    assert len(desk.site.forms) == 1
    stored = await desk.stored()
    assert stored is not None
    assert stored.lifetime is None
    assert stored.refresh_token == desk.credential.refresh_token


async def test_a_clock_that_is_set_back_does_not_prolong_a_token(desk: Desk) -> None:
    old = replace(desk.credential, obtained_at=desk.credential.obtained_at + 86_400)
    await desk.tokens.keep(old)
    assert await desk.call() == 200
    desk.now = 3590.0
    assert await desk.call() == 200
    assert desk.site.provider.refreshes == 1


async def test_tokens_are_not_logged(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="toolcrib"):
        desk.now = 4000.0
        assert await desk.call() == 200
    for secret in (desk.credential.access_token, await desk.bearer.access_token()):
        assert secret not in caplog.text


async def _status(requests: Requests) -> int:
    try:
        await requests.post(HttpCall(), b"", b'{"call": 1}', may_repeat=False)
    except RequestRefused as refused:
        return refused.status
    return 200


def _nothing_comes(message: JsonObject, call: HttpCall) -> None:
    raise AssertionError(message)


class _Empty(dict[str, AccessToken]):
    """Keeps nothing: every token is refused."""

    def __setitem__(self, key: str, value: AccessToken) -> None:
        pass


@asynccontextmanager
async def _wishing(desk: Desk, scope: str) -> AsyncGenerator[str]:
    async def app(asgi: Scope, receive: Receive, send: Send) -> None:
        header = f'Bearer error="insufficient_scope", scope="read {scope}"'
        await Response(status_code=403, headers={"www-authenticate": header})(asgi, receive, send)

    sock, port = listening_socket()
    async with serve_on(app, sock):
        yield f"http://127.0.0.1:{port}/mcp"
