"""The official conformance suite against one upstream behind the crib: both eras of the protocol, both transports.

The suite knows no token, so a wrapper inside the crib's own server shows it for the suite. Host and Origin reach the
crib's guard as they were sent, and the answers are the crib's own.
"""

import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx2
import pytest
from anyio.streams.text import TextReceiveStream
from starlette.types import ASGIApp, Receive, Scope, Send

from conformance.suite import EXPECTED_FAILURES, SCENARIOS, SpecVersion, judge
from length import takes_long
from loopback import PLAIN
from toolcrib.home import owner_token, prepare_home
from toolcrib.model.json import JsonObject
from toolcrib.server import run
from toolcrib.settings import Environment, Settings

Transport = Literal["stdio", "http"]

pytestmark = pytest.mark.anyio

TESTS = Path(__file__).parent.parent
COMMAND = [sys.executable, "-m", "upstreams.everything"]
VARIABLES = {"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop that `serve` runs on."""
    return "asyncio", {"use_uvloop": True}


@asynccontextmanager
async def everything() -> AsyncGenerator[str]:
    """The address of the SDK's server, listening."""
    async with await anyio.open_process([*COMMAND, "http"], env=VARIABLES, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            with anyio.fail_after(30):
                address = await TextReceiveStream(process.stdout).receive()
            yield address.strip()
        finally:
            process.terminate()


@asynccontextmanager
async def upstream(transport: Transport) -> AsyncGenerator[JsonObject]:
    """The same server as an entry of the crib's file; the crib starts it, unless it listens."""
    if transport == "stdio":
        program, *words = COMMAND
        yield {"command": program, "args": [*words, "stdio"], "env": VARIABLES}
        return
    async with everything() as url:
        yield {"type": "http", "url": url}


@asynccontextmanager
async def crib_with(entry: JsonObject, folder: Path, patch: pytest.MonkeyPatch) -> AsyncGenerator[str]:
    """The address of one upstream behind a crib, with the token already shown."""
    home = prepare_home(folder / "crib")
    home.mcp_json.write_text(json.dumps({"mcpServers": {"everything": {"share": "session", **entry}}}), "utf-8")
    token = (b"authorization", f"Bearer {owner_token(home)}".encode())
    make = run.create_app

    def create_app(*arguments: Any, **named: Any) -> ASGIApp:
        app = make(*arguments, **named)

        async def with_token(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, "headers": [*scope["headers"], token]}, receive, send)

        return with_token

    patch.setattr(run, "create_app", create_app)
    environment = Environment({"HOME": str(folder), "PATH": "/usr/bin:/bin"})
    async with run.hold(Settings(home=home.root), kind="serve", port=0, environment=environment) as holding:
        await until_connected(holding.info.url)
        yield f"{holding.mcp_url}/servers/everything"


async def until_connected(url: str) -> None:
    """Wait until the crib has met its upstream."""
    async with httpx2.AsyncClient(base_url=url, timeout=10, trust_env=False, verify=PLAIN) as client:
        server: JsonObject = {}
        with anyio.move_on_after(30):
            while server.get("state") != "connected":
                server = (await client.get("/api/servers/everything")).json()
                await anyio.sleep(0.05)
        assert server.get("state") == "connected", server


@takes_long
@pytest.mark.parametrize("version", SCENARIOS)
async def test_the_server_alone_passes_everything(node_programs: Path, tmp_path: Path, version: SpecVersion) -> None:
    async with everything() as url:
        verdict = await judge(node_programs, url, version, tmp_path)
    assert verdict.meets(version), str(verdict)


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("version", SCENARIOS)
async def test_behind_the_crib_it_passes_all_the_same(
    node_programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: SpecVersion, transport: Transport
) -> None:
    async with upstream(transport) as entry, crib_with(entry, tmp_path, monkeypatch) as url:
        verdict = await judge(node_programs, url, version, tmp_path, expected_failures=EXPECTED_FAILURES)
    assert verdict.meets(version), str(verdict)
