"""Many connections of one client do not block the owner and other clients."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import httpx2
import pytest

from http_clients import PLAIN
from integration.web.crib import Running, running_crib
from integration.web.wire import connect, raw_connection, read_until, status_of
from toolcrib.web.limits import WireLimits

pytestmark = pytest.mark.anyio

CAPACITY = 32


@pytest.fixture
async def small(tmp_path: Path) -> AsyncGenerator[Running]:
    """A crib that takes few connections."""
    async with running_crib(tmp_path / "home", WireLimits(connections=CAPACITY)) as crib:
        yield crib


async def token(crib: Running, name: str) -> str:
    _, secret = await crib.holding.crib.tokens.create(name, source="api")
    return secret


def request_of(secret: str, path: str = "/api/tools") -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: localhost:{{port}}\r\nauthorization: Bearer {secret}\r\n\r\n".encode()


async def test_idle_unauthenticated_connections_do_not_block_other_clients(small: Running) -> None:
    secret = await token(small, "app")
    idle = [raw_connection(small.port) for _ in range(6 * CAPACITY)]
    try:
        async with small.client() as owner:
            assert (await owner.get("/api/servers")).status_code == 200
        headers = {"authorization": f"Bearer {secret}"}
        async with httpx2.AsyncClient(base_url=small.url, headers=headers, trust_env=False, verify=PLAIN) as app:
            assert (await app.get("/api/tools")).status_code == 200
    finally:
        for each in idle:
            each.close()


async def test_token_at_its_connection_limit_is_refused_and_others_are_not(small: Running) -> None:
    greedy, modest = await token(small, "greedy"), await token(small, "modest")
    call = b"POST /api/tools/bench/wait/call HTTP/1.1\r\nhost: localhost:%d\r\n" % small.port
    call += b"content-type: application/json\r\ncontent-length: 16\r\n"
    call += b"authorization: Bearer %b\r\n\r\n" % greedy.encode()
    async with AsyncExitStack() as stack:
        for _ in range(CAPACITY // 4):
            # The body is incomplete, so the request stays open.
            stream = await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", small.port))
            await stream.send(call)
        one_more = await stack.enter_async_context(connect(small.port))
        await one_more.send(call)
        assert status_of(await read_until(one_more, b"crib.busy")) == 503
        for secret in (modest, small.token):
            other = await stack.enter_async_context(connect(small.port))
            await other.send(request_of(secret).replace(b"{port}", b"%d" % small.port))
            assert status_of(await read_until(other, b"\r\n\r\n")) == 200


async def test_idle_connections_of_a_token_are_replaced_by_its_new_ones(small: Running) -> None:
    secret = await token(small, "app")
    async with AsyncExitStack() as stack:
        for _ in range(2 * CAPACITY):
            stream = await stack.enter_async_context(connect(small.port))
            await stream.send(request_of(secret).replace(b"{port}", b"%d" % small.port))
            assert status_of(await read_until(stream, b"\r\n\r\n")) == 200
