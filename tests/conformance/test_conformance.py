"""The official conformance suite against one upstream behind the crib: both eras of the protocol, both transports.

The crib runs from its wheel in a process of its own (`conformance.serve`), with all extras and its own event loop.
The suite knows no token, so a wrapper around the server's application adds it. Host and Origin reach the crib's guard
as they were sent, and the answers are the crib's own.
"""

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import anyio
import httpx2
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from anyio.streams.text import TextReceiveStream

from conformance.suite import EXPECTED_FAILURES, SCENARIOS, SpecVersion, judge
from http_clients import NO_KEYRING, PLAIN
from long_tests import takes_long
from toolcrib.base.home import prepare_home
from toolcrib.model.json import JsonObject

Transport = Literal["stdio", "http"]

pytestmark = pytest.mark.anyio

TESTS = Path(__file__).parent.parent
COMMAND = [sys.executable, "-m", "upstreams.everything"]
VARIABLES = {"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"}


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
async def crib_with(entry: JsonObject, folder: Path, wheel: Path) -> AsyncGenerator[str]:
    """The address of one upstream behind `toolcrib serve`, which runs in a process of its own."""
    home = prepare_home(folder / "crib")
    home.mcp_json.write_text(json.dumps({"mcpServers": {"everything": {"share": "session", **entry}}}), "utf-8")
    variables = {
        "HOME": str(folder),
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": f"{wheel}{os.pathsep}{TESTS}",
        "TOOLCRIB_HOME": str(home.root),
        **NO_KEYRING,
    }
    command = [sys.executable, "-m", "conformance.serve", "serve", "--json", "--port", "0"]
    with (folder / "serve.log").open("wb") as log:
        async with await anyio.open_process(command, env=variables, cwd=folder, stderr=log) as process:
            try:
                assert process.stdout is not None
                with anyio.fail_after(60):
                    ready: JsonObject = json.loads(
                        await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 65_536)
                    )
                await until_connected(str(ready["mcp"]).removesuffix("/mcp"))
                yield f"{ready['mcp']}/servers/everything"
            finally:
                process.terminate()


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
    node_programs: Path, installed_wheel: Path, tmp_path: Path, version: SpecVersion, transport: Transport
) -> None:
    async with upstream(transport) as entry, crib_with(entry, tmp_path, installed_wheel) as url:
        verdict = await judge(node_programs, url, version, tmp_path, expected_failures=EXPECTED_FAILURES)
    assert verdict.meets(version), str(verdict)
