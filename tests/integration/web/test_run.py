"""Holding a home: exclusive access, the listening address, and shutdown."""

import socket
import stat
import time
from pathlib import Path

import anyio
import httpx2
import pytest
from starlette.types import Receive, Scope, Send

from deadlines import stretched
from http_clients import PLAIN
from integration.web.crib import running_crib
from integration.web.wire import connect, read_to_end, read_until, serve, status_of
from toolcrib.base.home import prepare_home, read_run
from toolcrib.base.settings import Settings
from toolcrib.model.errors import ConfigError, NotFound, Unavailable
from toolcrib.model.version import __version__
from toolcrib.web.listen import bind
from toolcrib.web.run import hold

pytestmark = pytest.mark.anyio


async def test_held_home_publishes_its_address_and_removes_it_afterwards(tmp_path: Path) -> None:
    home = prepare_home(tmp_path / "home")
    async with running_crib(home.root) as running:
        info = read_run(home)
        assert info == running.holding.info
        assert info is not None
        assert info.kind == "serve"
        assert info.version == __version__
        assert running.holding.mcp_url == f"{info.url}/mcp"
        assert stat.S_IMODE(home.run_file.stat().st_mode) == 0o600
        async with running.client(token=False) as client:
            health = await client.get("/healthz")
            assert health.json() == {"status": "ok"}
    assert not home.run_file.exists()
    bind("127.0.0.1", running.port).close()


async def test_server_info_has_the_port(tmp_path: Path) -> None:
    async with running_crib(tmp_path / "home") as running, running.client() as client:
        answer = await client.post("/api/tools/toolcrib/get_server_info/call", json={"arguments": {}})
        assert answer.json()["structuredContent"]["port"] == running.port


async def test_second_holder_gets_the_address_of_the_first(tmp_path: Path) -> None:
    async with running_crib(tmp_path / "home") as running:
        with pytest.raises(Unavailable) as refused:
            async with hold(Settings(home=tmp_path / "home"), kind="serve", port=running.port):
                pass
        assert refused.value.code == "crib.running"
        assert running.url in refused.value.message


async def test_occupied_port_is_an_error_and_releases_the_home(tmp_path: Path) -> None:
    taken = bind("127.0.0.1", 0)
    port = taken.getsockname()[1]
    settings = Settings(home=tmp_path / "home", port=port)
    try:
        with pytest.raises(Unavailable) as refused:
            async with hold(settings, kind="serve"):
                pass
        assert refused.value.code == "bind.occupied"
        assert str(port) in refused.value.message
        async with hold(settings, kind="stdio") as holding:
            assert holding.crib.port not in (0, port)
    finally:
        taken.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", "", "::ffff:192.0.2.1", "169.254.1.1"])
async def test_only_loopback_addresses_are_allowed(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError) as refused:
        async with hold(Settings(home=tmp_path / "home", host=host), kind="serve", port=0):
            pass
    assert refused.value.code == "bind.refused"
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
async def test_every_loopback_host_works(tmp_path: Path, host: str) -> None:
    try:
        bind(host, 0).close()
    except Unavailable:
        pytest.skip(f"this machine has no {host}")
    settings = Settings(home=tmp_path / "home", host=host)
    async with (
        hold(settings, kind="serve", port=0) as holding,
        httpx2.AsyncClient(trust_env=False, verify=PLAIN, timeout=60) as client,
    ):
        assert (await client.get(f"{holding.info.url}/healthz")).status_code == 200


def test_listening_socket_names_tcp_so_that_asyncio_disables_delay() -> None:
    with bind("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


async def test_exception_in_the_block_is_raised_unchanged(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="mine"):
        async with running_crib(tmp_path / "home"):
            raise NotFound("tool.unknown", "mine")


async def test_shutdown_ends_streams_and_finishes_requests_in_flight(tmp_path: Path) -> None:
    answers: list[httpx2.Response] = []
    streams: list[str] = []
    followed = anyio.Event()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            async with running_crib(tmp_path / "home") as running:

                async def call() -> None:
                    async with running.client() as client:
                        answers.append(await client.post("/api/tools/bench/wait/call", json={}))

                async def follow() -> None:
                    async with running.client() as client, client.stream("GET", "/api/events") as response:
                        followed.set()
                        streams.extend([line async for line in response.aiter_lines()])

                tasks.start_soon(call)
                tasks.start_soon(follow)
                await running.bench.started.wait()
                await followed.wait()
                tasks.start_soon(_release_later, running.bench.release)
                began = time.monotonic()
            assert time.monotonic() - began < stretched(3)
    assert answers[0].status_code == 200
    assert answers[0].json()["content"][0]["text"] == "released"


async def _release_later(release: anyio.Event) -> None:
    await anyio.sleep(0.3)
    release.set()


async def test_endless_request_is_cancelled_after_the_grace_period() -> None:
    entered, cancelled = anyio.Event(), anyio.Event()
    answers: list[bytes] = []

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        entered.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    async with anyio.create_task_group() as tasks:
        async with serve(endless, grace=1) as port:

            async def request() -> None:
                async with connect(port) as stream:
                    await stream.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
                    answers.append(await read_until(stream, b"begun") + await read_to_end(stream))

            tasks.start_soon(request)
            await entered.wait()
        assert cancelled.is_set()
    assert status_of(answers[0]) == 200
