"""The examples of the README, run in an empty HOME with the installed program."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest
from anyio.streams.text import TextReceiveStream
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

from e2e.forked_commands import fork_server
from http_clients import PLAIN

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
BLOCKS: list[tuple[str, str]] = re.findall(
    r"^```(\w*)\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)


def blocks(language: str) -> list[str]:
    return [text for found, text in BLOCKS if found == language]


def client_settings() -> dict[str, dict[str, Any]]:
    """Return the README's settings for MCP clients, by transport."""
    written = [json.loads(text)["mcpServers"]["toolcrib"] for text in blocks("json")]
    return {each.get("type", "stdio"): each for each in written}


@dataclass(frozen=True)
class Reader:
    """Follows the README with an empty HOME."""

    folder: Path
    environment: dict[str, str]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        if command[0] == "toolcrib" and (server := fork_server()) is not None:
            return server.run(command[1:], self.folder, self.environment, None, 60)
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )

    @property
    def home(self) -> Path:
        """The home, as `toolcrib settings` prints it."""
        shown = json.loads(self.run("toolcrib", "settings", "--json").stdout)
        return next(Path(each["value"]) for each in shown if each["name"] == "home")


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """Return a reader who has written the tool file."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TOOLCRIB_", "XDG_")) and name != "PYTHONPATH"
    }
    # A test server replaces what `uvx` would download: the test covers the commands, not the network.
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "uvx").write_text(f"#!/bin/sh\nPYTHONPATH={ROOT / 'tests'} exec {sys.executable} -m upstreams.clock\n")
    (programs / "uvx").chmod(0o755)
    path = os.pathsep.join((str(BIN), str(programs), inherited.get("PATH", "")))
    environment = {**inherited, "HOME": str(tmp_path), "PATH": path}
    reader = Reader(tmp_path, environment)
    for text in blocks("python"):
        if name := re.match(r"# (tools/\w+\.py)\n", text):
            path = reader.home / name[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return reader


@asynccontextmanager
async def serving(reader: Reader) -> AsyncGenerator[str]:
    """Run `toolcrib serve` on a free port. Yields the address of its endpoint."""
    command = ["toolcrib", "serve", "--no-open", "--port", "0", "--json"]
    async with await anyio.open_process(command, cwd=reader.folder, env=reader.environment, stderr=None) as process:
        assert process.stdout is not None
        try:
            with anyio.fail_after(30):
                line = ""
                while not line.endswith("\n"):
                    line += await TextReceiveStream(process.stdout).receive()
            yield json.loads(line)["mcp"]
        finally:
            process.terminate()
            with anyio.fail_after(10, shield=True):
                await process.wait()


async def check_tool_of_client(client: Client) -> None:
    with anyio.fail_after(30):
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert "weather_forecast" in names
        result = await client.call_tool("weather_forecast", {"city": "Ulm", "days": 1})
    assert not result.is_error
    assert any(isinstance(part, TextContent) and "Ulm, day 1: sunny" in part.text for part in result.content)


def test_every_block_of_the_readme_is_tested() -> None:
    assert {language for language, _ in BLOCKS} == {"", "bash", "json", "python"}
    assert [text.split("#")[0].strip() for text in "".join(blocks("")).splitlines()] == ["make run", "make test"]
    script = (ROOT / "scripts" / "fresh_clone.sh").read_text(encoding="utf-8")
    assert re.search(r"^make run ", script, re.MULTILINE)
    assert re.search(r"^make test$", script, re.MULTILINE)


@pytest.mark.anyio
async def test_commands_of_the_readme_show_call_and_record_the_tool(reader: Reader) -> None:
    shown: dict[str, str] = {}
    async with serving(reader):
        for line in "".join(blocks("bash")).splitlines():
            done = await anyio.to_thread.run_sync(reader.run, *shlex.split(line))
            assert done.returncode == 0, f"{line}: {done.stderr}"
            command = " ".join(shlex.split(line)[:3])
            shown[command] = shown.get(command, "") + done.stdout
    assert "weather/forecast" in shown["toolcrib tools list"]
    assert "1 to 7" in shown["toolcrib tools show"]
    assert "Ulm, day 2: sunny" in shown["toolcrib tools call"]
    assert "weather/forecast" in shown["toolcrib audit"]
    assert "connected" in shown["toolcrib mcp test"]
    assert "time/get_current_time" in shown["toolcrib tools search"]


@pytest.mark.anyio
async def test_stdio_client_of_the_readme_calls_the_tool(reader: Reader) -> None:
    written = client_settings()["stdio"]
    parameters = StdioServerParameters(
        command=str(BIN / written["command"]), args=written["args"], env=reader.environment, cwd=reader.folder
    )
    with anyio.fail_after(60):
        async with Client(parameters) as client:
            await check_tool_of_client(client)


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_http_client_of_the_readme_calls_the_tool_with_the_token(reader: Reader, mode: str) -> None:
    written = client_settings()["http"]
    with anyio.fail_after(60):
        async with serving(reader) as address:
            assert re.sub(r":\d+/", "/", written["url"]) == re.sub(r":\d+/", "/", address)
            token = (reader.home / "token").read_text(encoding="utf-8").strip()
            headers = {name: value.replace("TOKEN", token) for name, value in written["headers"].items()}
            async with (
                httpx2.AsyncClient(headers=headers, trust_env=False, verify=PLAIN, timeout=60) as http,
                Client(streamable_http_client(address, http_client=http), mode=mode) as client,
            ):
                await check_tool_of_client(client)
