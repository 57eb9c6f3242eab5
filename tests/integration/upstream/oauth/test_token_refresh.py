"""Token refresh with many callers, several processes, and failing issuers and servers."""

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


class SignedIn:
    """A signed-in server, and its bearer token."""

    def __init__(self, site: Authority, web: Web, tokens: CredentialStore, credential: OAuthCredential) -> None:
        self.site = site
        self.web = web
        self.tokens = tokens
        self.credential = credential
        self.now = 0.0
        self.bearer = self.new_bearer()

    def new_bearer(self) -> Bearer:
        """Return another bearer of the same sign-in, with the clock of the test."""
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
        """Yield requests to the server, or to another URL, with the sign-in."""
        checked = check_url(url or self.site.resource, local_allowed=True)
        async with HttpClient(self.web, checked, local_allowed=True, timeouts=HttpTimeouts()) as client:
            yield Requests(client, _refuse_messages, checked, {}, bearer or self.bearer)

    async def call(self, bearer: Bearer | None = None, url: str | None = None) -> int:
        async with self.requests(bearer, url) as requests:
            with anyio.fail_after(10):
                return await _status(requests)

    async def calls(self, count: int) -> list[int]:
        """Send this many calls at once."""
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
async def signed_in(tmp_path: Path) -> AsyncGenerator[SignedIn]:
    web, tokens = shared_web(), credentials_in(tmp_path)
    async with authority() as site:
        async with signing_in(web, tokens, target(site)) as attempt:
            credential = await complete(attempt)
        site.authorizations.clear()
        site.forms.clear()
        yield SignedIn(site, web, tokens, credential)


async def test_token_is_sent_to_the_server(signed_in: SignedIn) -> None:
    assert await signed_in.call() == 200
    assert signed_in.site.authorizations == [f"Bearer {signed_in.credential.access_token}"]
    assert await signed_in.bearer.access_token() == signed_in.credential.access_token


async def test_concurrent_calls_with_an_expired_token_refresh_it_once(signed_in: SignedIn) -> None:
    signed_in.now = 4000.0
    signed_in.site.provider.access.clear()
    assert await signed_in.calls(100) == [200] * 100
    assert signed_in.site.provider.refreshes == 1
    assert len(signed_in.site.authorizations) == 100
    assert signed_in.site.forms[0]["resource"] == signed_in.site.resource
    assert (await signed_in.stored() or signed_in.credential).access_token != signed_in.credential.access_token


async def test_concurrent_refusals_of_a_token_refresh_it_once(signed_in: SignedIn) -> None:
    signed_in.site.provider.access.clear()
    assert await signed_in.calls(100) == [200] * 100
    assert signed_in.site.provider.refreshes == 1
    assert len(signed_in.site.authorizations) <= 200


@pytest.mark.parametrize("answer", [(400, b'{"error": "invalid_grant"}'), (500, b""), (200, b"[]"), (429, b"{}")])
async def test_failed_refresh_is_tried_once_for_all_callers(signed_in: SignedIn, answer: tuple[int, bytes]) -> None:
    signed_in.site.provider.access.clear()
    signed_in.site.token_answer = answer
    assert await signed_in.calls(30) == [401] * 30
    assert len(signed_in.site.forms) == 1
    assert len(signed_in.site.authorizations) == 30
    problem = signed_in.bearer.problem
    assert problem is not None
    if answer[0] == 400:
        assert problem.code == "oauth.required"
        assert problem.message == 'Authentication required for "lab".'
        assert problem.hint == "Run `toolcrib mcp auth lab`."
    else:
        assert problem.message.startswith("OAuth authentication failed: the token could not be refreshed: ")


async def test_refused_refresh_is_not_repeated_after_a_restart(signed_in: SignedIn) -> None:
    signed_in.site.provider.access.clear()
    signed_in.site.token_answer = (400, b'{"error": "invalid_grant"}')
    assert await signed_in.call() == 401
    assert await signed_in.call(signed_in.new_bearer()) == 401
    assert len(signed_in.site.forms) == 1


async def test_refresh_is_retried_after_the_issuer_was_unavailable(signed_in: SignedIn) -> None:
    signed_in.site.provider.access.clear()
    signed_in.site.token_answer = (503, b"")
    assert await signed_in.call() == 401
    assert (await signed_in.stored()) == signed_in.credential
    signed_in.site.token_answer = None
    assert await signed_in.call() == 401
    signed_in.now += 6
    assert await signed_in.call() == 200
    assert signed_in.bearer.problem is None
    assert len(signed_in.site.forms) == 2


async def test_cancelled_caller_does_not_interrupt_a_refresh(signed_in: SignedIn) -> None:
    signed_in.now = 4000.0
    signed_in.site.token_hangs = anyio.Event()
    with anyio.fail_after(15):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(signed_in.call)
            await eventually(lambda: bool(signed_in.site.forms))
            tasks.cancel_scope.cancel()
            signed_in.site.token_hangs.set()
    stored = await signed_in.stored()
    assert stored is not None
    assert stored.access_token != signed_in.credential.access_token
    assert await signed_in.call() == 200
    assert signed_in.site.provider.refreshes == 1


async def test_refused_new_token_is_not_refreshed_again(signed_in: SignedIn) -> None:
    signed_in.site.provider.access = _Empty()
    for _ in range(5):
        assert await signed_in.call() == 401
    assert signed_in.site.provider.refreshes == 1
    assert len(signed_in.site.authorizations) == 6
    assert signed_in.bearer.problem is not None
    assert signed_in.bearer.problem.code == "oauth.required"


async def test_sign_in_of_another_process_is_found_after_a_refusal(signed_in: SignedIn) -> None:
    await signed_in.tokens.forget("lab")
    assert await signed_in.call() == 401
    with pytest.raises(Unavailable, match='Authentication required for "lab"'):
        await signed_in.bearer.access_token()
    await signed_in.tokens.keep(signed_in.credential)
    assert await signed_in.call() == 200
    assert signed_in.bearer.problem is None


async def test_token_refreshed_by_another_process_is_used(signed_in: SignedIn) -> None:
    other = signed_in.new_bearer()
    assert [await signed_in.call(), await signed_in.call(other)] == [200, 200]
    signed_in.site.provider.access.clear()
    assert [await signed_in.call(), await signed_in.call(other)] == [200, 200]
    assert signed_in.site.provider.refreshes == 1


async def test_refreshed_token_is_used_if_it_cannot_be_stored(
    signed_in: SignedIn, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    signed_in.site.provider.access.clear()
    monkeypatch.setattr(os, "fsync", full)
    assert await signed_in.calls(20) == [200] * 20
    assert signed_in.site.provider.refreshes == 1
    assert await signed_in.stored() == signed_in.credential
    assert "Could not store" in caplog.text


async def test_deleted_credential_is_no_longer_sent(signed_in: SignedIn) -> None:
    assert await signed_in.call() == 200
    await signed_in.tokens.forget("lab")
    await signed_in.bearer.reload()
    assert await signed_in.call() == 401
    assert signed_in.site.authorizations[-1] is None


async def test_token_is_not_sent_to_another_origin(signed_in: SignedIn) -> None:
    async with authority() as other:
        assert await signed_in.call(url=other.resource) == 401
        assert other.authorizations == [None]
    assert await signed_in.call(url=f"{signed_in.site.url.replace('127.0.0.1', 'localhost')}/mcp") == 401
    assert signed_in.site.authorizations == [None]


async def test_missing_scope_does_not_refresh_the_token(signed_in: SignedIn) -> None:
    signed_in.site.required_scopes.append("write")
    for _ in range(3):
        assert await signed_in.call() == 403
    assert signed_in.site.provider.refreshes == 0
    assert len(signed_in.site.authorizations) == 3


async def test_demanded_scopes_need_a_new_sign_in(signed_in: SignedIn) -> None:
    async with _scope_server(signed_in, "write") as url:
        bearer = Bearer(signed_in.web, signed_in.tokens, "limited", check_url(url, local_allowed=True))
        limited = replace(signed_in.credential, server="limited", resource=url)
        await signed_in.tokens.keep(limited)
        assert await signed_in.call(bearer, url) == 403
        assert bearer.demand.scopes == ("read", "write")
        assert bearer.problem is not None
        assert bearer.problem.message == 'Authentication required for "limited": it requires the scopes read write.'
        more = replace(limited, access_token="more", asked=bearer.demand.scopes)
        await signed_in.tokens.keep(more)
        assert await signed_in.call(bearer, url) == 403  # signed in again, but the scope is still not granted
        assert bearer.problem.code == "oauth.required"
        assert await signed_in.call(bearer, url) == 403
        assert "did not grant" in bearer.problem.message


async def test_two_processes_with_one_rotating_token_both_stay_signed_in(signed_in: SignedIn, tmp_path: Path) -> None:
    rounds = 25
    command = [sys.executable, str(RENEWER), str(tmp_path / "oauth"), signed_in.site.resource, str(rounds)]
    outputs: list[bytes] = []

    async def one() -> None:
        outputs.append((await anyio.run_process(command)).stdout)

    with anyio.fail_after(40):
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(one)
    assert [json.loads(output) for output in outputs] == [[200] * rounds] * 2
    assert signed_in.site.provider.reuses == 0
    assert signed_in.site.provider.refreshes > rounds
    stored = await signed_in.stored()
    assert stored is not None
    assert not signed_in.site.provider.refresh[stored.refresh_token or ""].spent


@pytest.mark.parametrize("expires_in", [b"", b', "expires_in": 0', b', "expires_in": -5', b', "expires_in": "soon"'])
async def test_invalid_token_lifetime_is_ignored(signed_in: SignedIn, expires_in: bytes) -> None:
    signed_in.now = 4000.0
    signed_in.site.token_answer = (200, b'{"access_token": "strange", "token_type": "Bearer"' + expires_in + b"}")
    for _ in range(3):
        assert await signed_in.call() == 401
    assert signed_in.site.authorizations[0] == "Bearer strange"
    assert len(signed_in.site.forms) == 1
    stored = await signed_in.stored()
    assert stored is not None
    assert stored.lifetime is None
    assert stored.refresh_token == signed_in.credential.refresh_token


async def test_clock_set_back_does_not_extend_a_token(signed_in: SignedIn) -> None:
    old = replace(signed_in.credential, obtained_at=signed_in.credential.obtained_at + 86_400)
    await signed_in.tokens.keep(old)
    assert await signed_in.call() == 200
    signed_in.now = 3590.0
    assert await signed_in.call() == 200
    assert signed_in.site.provider.refreshes == 1


async def test_tokens_are_not_logged(signed_in: SignedIn, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="toolcrib"):
        signed_in.now = 4000.0
        assert await signed_in.call() == 200
    for secret in (signed_in.credential.access_token, await signed_in.bearer.access_token()):
        assert secret not in caplog.text


async def _status(requests: Requests) -> int:
    try:
        await requests.post(HttpCall(), b"", b'{"call": 1}', may_repeat=False)
    except RequestRefused as refused:
        return refused.status
    return 200


def _refuse_messages(message: JsonObject, call: HttpCall) -> None:
    raise AssertionError(message)


class _Empty(dict[str, AccessToken]):
    """A dictionary that stays empty, so that every token is refused."""

    def __setitem__(self, key: str, value: AccessToken) -> None:
        pass


@asynccontextmanager
async def _scope_server(signed_in: SignedIn, scope: str) -> AsyncGenerator[str]:
    async def app(asgi: Scope, receive: Receive, send: Send) -> None:
        header = f'Bearer error="insufficient_scope", scope="read {scope}"'
        await Response(status_code=403, headers={"www-authenticate": header})(asgi, receive, send)

    sock, port = listening_socket()
    async with serve_on(app, sock):
        yield f"http://127.0.0.1:{port}/mcp"
