"""`toolcrib mcp` in a terminal: the list of servers and its keys."""

import json
import sys

import pytest

from integration.cli.conftest import CommandLine
from long_tests import takes_long
from terminal import at_terminal

pytestmark = [pytest.mark.anyio, takes_long]


@pytest.fixture
def servers(cli: CommandLine) -> CommandLine:
    """A home with one working and one broken server."""
    cli.home.mkdir(mode=0o700, exist_ok=True)
    written = {
        "clock": {"command": sys.executable, "args": ["-m", "upstreams.clock"]},
        "broken": {"command": "/no/such/program"},
    }
    (cli.home / "mcp.json").write_text(json.dumps({"mcpServers": written}), encoding="utf-8")
    return cli


async def test_keys_switch_a_server_open_its_details_and_quit(servers: CommandLine) -> None:
    command = [sys.executable, "-m", "toolcrib", "mcp"]
    async with at_terminal(command, servers.variables, servers.folder, columns=90) as terminal:
        await terminal.shows("MCP servers (2)")
        await terminal.shows("q: quit")
        terminal.press("\x1b[B")
        terminal.press("e")
        await terminal.shows("Changed")
        terminal.press("\r")
        await terminal.shows("If you trust it:")
        terminal.press("q")
        await terminal.shows("up/down: choose")
        terminal.press("q")
        assert await terminal.ended() == 0
        assert terminal.is_plain()
        assert terminal.rows.obeyed == []
    listed = await servers.json("mcp", "list")
    assert sorted(each["enabled"] for each in listed) == [False, True]


async def test_adding_a_server_prompts_for_each_field(servers: CommandLine) -> None:
    command = [sys.executable, "-m", "toolcrib", "mcp"]
    async with at_terminal(command, servers.variables, servers.folder, columns=90) as terminal:
        await terminal.shows("q: quit")
        terminal.press("a")
        for question, answer in (
            ("Name:", "third"),
            ("Type: stdio, http or sse", "stdio"),
            ("Scope: user or project", "user"),
            ("Command line:", "/bin/true"),
            ("Variable NAME=VALUE", ""),
            ("Working directory (empty", ""),
        ):
            await terminal.shows(question)
            terminal.enter(answer)
        await terminal.shows('Added "third"')
        terminal.enter("")
        await terminal.shows("MCP servers (3)")
        terminal.press("\x03")
        assert await terminal.ended() == 130
        assert "Traceback" not in terminal.written


async def test_server_is_removed_after_confirmation_and_the_list_follows_a_resize(servers: CommandLine) -> None:
    command = [sys.executable, "-m", "toolcrib", "mcp"]
    async with at_terminal(command, servers.variables, servers.folder, columns=100) as terminal:
        await terminal.shows("q: quit")
        terminal.press("d")
        await terminal.shows("Remove broken? Press y")
        terminal.press("n")
        await terminal.shows("Nothing was changed.")
        terminal.resize(60)
        await terminal.shows("MCP servers (2)")
        await terminal.shows("q: quit")
        assert all(len(row) < 60 for row in terminal.rows.text.split("\n"))
        terminal.press("d")
        await terminal.shows("Remove broken? Press y")
        terminal.press("y")
        await terminal.shows("MCP servers (1)")
        await terminal.shows("Undo: toolcrib")
        terminal.press("q")
        assert await terminal.ended() == 0
    assert [each["name"] for each in await servers.json("mcp", "list")] == ["clock"]


async def test_without_a_terminal_help_is_printed(cli: CommandLine) -> None:
    done = await cli.run("mcp")
    assert done.returncode == 0
    assert b"Usage: toolcrib mcp" in done.stdout
