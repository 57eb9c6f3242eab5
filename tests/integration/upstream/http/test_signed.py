"""Calls to a server that wants a sign-in, with a real authorization server behind it."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import anyio
import orjson
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from integration.upstream.http.harness import DISCOVERED, call, open_connection
from integration.upstream.oauth.authority import Authority, authority, complete, credentials_in, shared_web, target
from toolcrib.base.network.urls import check_url
from toolcrib.model.errors import Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.upstream.credentials import CredentialStore
from toolcrib.upstream.oauth.sign_in import signing_in
from toolcrib.upstream.oauth.token_refresh import Bearer

pytestmark = pytest.mark.anyio


class Guarded(Authority):
    """A modern MCP server that wants a token."""

    async def _resource(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = orjson.loads(await Request(scope, receive).body())
        value: JsonObject = DISCOVERED if message["method"] == "server/discover" else {"content": []}
        body = orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": value})
        await Response(body, media_type="application/json")(scope, receive, send)


@dataclass
class Desk:
    """The server, and a sign-in there."""

    site: Authority
    tokens: CredentialStore
    bearer: Bearer


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncGenerator[Desk]:
    web, tokens = shared_web(), credentials_in(tmp_path)
    async with authority(Guarded()) as site:
        async with signing_in(web, tokens, target(site)) as attempt:
            await complete(attempt)
        site.authorizations.clear()
        site.forms.clear()
        yield Desk(site, tokens, Bearer(web, tokens, "lab", check_url(site.resource, local_allowed=True)))


async def test_a_hundred_calls_on_a_token_that_is_over_renew_it_once(desk: Desk) -> None:
    with anyio.fail_after(30):
        async with open_connection(desk.site.resource, bearer=desk.bearer) as (connection, _):
            desk.site.provider.access.clear()
            async with anyio.create_task_group() as tasks:
                for _ in range(100):
                    tasks.start_soon(call, connection, "echo")
            assert desk.site.provider.refreshes == 1
            assert len(desk.site.authorizations) <= 201


async def test_a_sign_in_that_is_over_for_good_is_told_to_everybody_and_asked_for_once(desk: Desk) -> None:
    told: list[tuple[str, str | None]] = []

    with anyio.fail_after(30):
        async with open_connection(desk.site.resource, bearer=desk.bearer) as (connection, _):
            desk.site.provider.access.clear()
            desk.site.token_answer = (400, b'{"error": "invalid_grant"}')

            async def one() -> None:
                with pytest.raises(Unavailable) as caught:
                    await call(connection, "echo")
                told.append((caught.value.code, caught.value.hint))

            async with anyio.create_task_group() as tasks:
                for _ in range(30):
                    tasks.start_soon(one)
            assert connection.failure is None
    assert set(told) == {("oauth.required", "Run `toolcrib mcp auth lab`.")}
    assert len(told) == 30
    assert len(desk.site.forms) == 1


async def test_a_server_is_not_taken_for_an_old_one_because_it_wants_a_sign_in(desk: Desk) -> None:
    for bearer in (None, desk.bearer):
        await desk.tokens.forget("lab")
        desk.site.authorizations.clear()
        with anyio.fail_after(20), pytest.raises(Unavailable) as caught:
            async with open_connection(desk.site.resource, bearer=bearer):
                raise AssertionError("nobody is signed in")
        assert caught.value.code == "oauth.required"
        assert desk.site.authorizations == [None]


async def test_rights_that_are_missing_are_named(desk: Desk) -> None:
    with anyio.fail_after(20):
        async with open_connection(desk.site.resource, bearer=desk.bearer) as (connection, _):
            desk.site.needs.append("write")
            with pytest.raises(Unavailable) as caught:
                await call(connection, "echo")
    assert caught.value.code == "oauth.failed"
    assert "did not grant" in caught.value.message
