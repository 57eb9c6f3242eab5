"""Servers from the Python index, used through every entry point of a crib."""

import subprocess
from pathlib import Path

import pytest
from mcp_types import TextContent

from lab import ModeName
from long_tests import takes_long
from registry.crib import Crib

pytestmark = pytest.mark.anyio


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Create a repository with one commit."""
    folder = tmp_path / "repository"
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")
    commands = (("init", "--quiet"), ("commit", "--quiet", "--allow-empty", "--message", "A first step"))
    folder.mkdir()
    for command in commands:
        variables = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        subprocess.run(["git", *identity, *command], cwd=folder, env=variables, check=True, timeout=30)
    return folder


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_git_log_is_read_through_every_entry_point(
    python_servers: Path, repository: Path, tmp_path: Path, mode: ModeName
) -> None:
    arguments = {"repo_path": str(repository)}
    entry = {"command": str(python_servers / "mcp-server-git"), "args": ["--repository", str(repository)]}
    with Crib.serving_one(tmp_path, "git", entry, python_servers) as crib:
        await crib.until_connected()
        listed = await crib.listed()
        assert listed["rest"] == listed["cli"] == listed["mcp"]
        assert "A first step" in await crib.by_rest("git_log", arguments)
        assert "A first step" in await crib.by_command("git_log", arguments)
        async with crib.client(mode) as client:
            answer = await client.call_tool("git_log", arguments)  # a name that begins with its server's name is kept
    assert isinstance(answer.content[0], TextContent)
    assert "A first step" in answer.content[0].text


async def test_time_is_converted(python_servers: Path, tmp_path: Path) -> None:
    arguments = {"source_timezone": "Europe/Berlin", "time": "14:30", "target_timezone": "Asia/Tokyo"}
    entry = {"command": str(python_servers / "mcp-server-time"), "args": ["--local-timezone", "UTC"]}
    with Crib.serving_one(tmp_path, "time", entry, python_servers) as crib:
        await crib.until_connected()
        answer = await crib.by_rest("convert_time", arguments)
        assert "Asia/Tokyo" in answer
        assert answer == await crib.by_command("convert_time", arguments)


@takes_long
async def test_fetch_server_is_listed(python_servers: Path, tmp_path: Path) -> None:
    entry = {"command": str(python_servers / "mcp-server-fetch")}
    with Crib.serving_one(tmp_path, "fetch", entry, python_servers) as crib:
        await crib.until_connected()
        assert (await crib.listed())["mcp"] == {"fetch"}
