"""Calls to a server that requires a sign-in, with a real authorization server."""

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


class ProtectedServer(Authority):
    """A modern MCP server that requires a token."""

    async def _resource(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = orjson.loads(await Request(scope, receive).body())
        value: JsonObject = DISCOVERED if message["method"] == "server/discover" else {"content": []}
        body = orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": value})
        await Response(body, media_type="application/json")(scope, receive, send)


@dataclass
class SignedIn:
    """A signed-in server and its credentials."""

    site: Authority
    tokens: CredentialStore
    bearer: Bearer


@pytest.fixture
async def signed_in(tmp_path: Path) -> AsyncGenerator[SignedIn]:
    web, tokens = shared_web(), credentials_in(tmp_path)
    async with authority(ProtectedServer()) as site:
        async with signing_in(web, tokens, target(site)) as attempt:
            await complete(attempt)
        site.authorizations.clear()
        site.forms.clear()
        yield SignedIn(site, tokens, Bearer(web, tokens, "lab", check_url(site.resource, local_allowed=True)))


async def test_concurrent_calls_with_a_revoked_token_refresh_it_once(signed_in: SignedIn) -> None:
    with anyio.fail_after(30):
        async with open_connection(signed_in.site.resource, bearer=signed_in.bearer) as (connection, _):
            signed_in.site.provider.access.clear()
            async with anyio.create_task_group() as tasks:
                for _ in range(100):
                    tasks.start_soon(call, connection, "echo")
            assert signed_in.site.provider.refreshes == 1
            assert len(signed_in.site.authorizations) <= 201


async def test_refused_refresh_fails_all_calls_and_is_requested_once(signed_in: SignedIn) -> None:
    errors: list[tuple[str, str | None]] = []

    with anyio.fail_after(30):
        async with open_connection(signed_in.site.resource, bearer=signed_in.bearer) as (connection, _):
            signed_in.site.provider.access.clear()
            signed_in.site.token_answer = (400, b'{"error": "invalid_grant"}')

            async def one() -> None:
                with pytest.raises(Unavailable) as caught:
                    await call(connection, "echo")
                errors.append((caught.value.code, caught.value.hint))

            async with anyio.create_task_group() as tasks:
                for _ in range(30):
                    tasks.start_soon(one)
            assert connection.failure is None
    assert set(errors) == {("oauth.required", "Run `toolcrib mcp auth lab`.")}
    assert len(errors) == 30
    assert len(signed_in.site.forms) == 1


async def test_required_sign_in_does_not_cause_a_fallback_to_the_legacy_era(signed_in: SignedIn) -> None:
    for bearer in (None, signed_in.bearer):
        await signed_in.tokens.forget("lab")
        signed_in.site.authorizations.clear()
        with anyio.fail_after(20), pytest.raises(Unavailable) as caught:
            async with open_connection(signed_in.site.resource, bearer=bearer):
                raise AssertionError("it was connected")
        assert caught.value.code == "oauth.required"
        assert signed_in.site.authorizations == [None]


async def test_missing_scope_is_reported(signed_in: SignedIn) -> None:
    with anyio.fail_after(20):
        async with open_connection(signed_in.site.resource, bearer=signed_in.bearer) as (connection, _):
            signed_in.site.required_scopes.append("write")
            with pytest.raises(Unavailable) as caught:
                await call(connection, "echo")
    assert caught.value.code == "oauth.failed"
    assert "did not grant" in caught.value.message
