"""The MCP Inspector's command line, a real client of others, against a running crib."""

import json
import sys
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from lab import Lab, make_lab
from toolcrib.model.json import Json
from toolcrib.web.run import hold

pytestmark = pytest.mark.anyio


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncGenerator[Lab]:
    stopped = make_lab(tmp_path)
    async with hold(stopped.settings, kind="serve") as holding:
        yield replace(stopped, url=holding.info.url)


async def inspect(programs: Path, home: Path, *arguments: str) -> Json:
    """What the Inspector says, run with an environment and a home of its own."""
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(home)}
    command = [str(programs / "mcp-inspector"), "--cli", *arguments]
    with anyio.fail_after(60):
        done = await anyio.run_process(command, env=environment, cwd=home, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


async def test_it_lists_and_calls_over_http(lab: Lab, node_programs: Path, tmp_path: Path) -> None:
    way = (f"{lab.url}/mcp", "--transport", "http", "--header", f"Authorization: Bearer {lab.token}")
    listed = await inspect(node_programs, tmp_path, *way, "--method", "tools/list")
    assert "lab_echo" in {tool["name"] for tool in listed["tools"]}
    call = ("--method", "tools/call", "--tool-name", "lab_echo", "--tool-arg", "text=hello")
    assert (await inspect(node_programs, tmp_path, *way, *call))["structuredContent"] == {"said": "hello"}


async def test_it_lists_and_calls_over_stdio(lab: Lab, node_programs: Path, tmp_path: Path) -> None:
    way = (sys.executable, "-m", "toolcrib", "stdio", "--home", str(lab.home))
    listed = await inspect(node_programs, tmp_path, *way, "--method", "tools/list")
    assert "toolcrib_ping" in {tool["name"] for tool in listed["tools"]}
    call = ("--method", "tools/call", "--tool-name", "toolcrib_ping")
    assert (await inspect(node_programs, tmp_path, *way, *call))["structuredContent"]["status"] == "pong"
