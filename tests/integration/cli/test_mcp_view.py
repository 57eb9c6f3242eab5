"""`toolcrib mcp` at a terminal: the view of all servers, and what keys in it do."""

import json
import sys

import pytest

from integration.cli.conftest import Person
from long_tests import takes_long
from terminal import at_terminal

pytestmark = [pytest.mark.anyio, takes_long]


@pytest.fixture
def servers(person: Person) -> Person:
    """A person with one server that works and one that does not."""
    person.home.mkdir(mode=0o700, exist_ok=True)
    written = {
        "clock": {"command": sys.executable, "args": ["-m", "upstreams.clock"]},
        "broken": {"command": "/no/such/program"},
    }
    (person.home / "mcp.json").write_text(json.dumps({"mcpServers": written}), encoding="utf-8")
    return person


async def test_servers_are_tested_switched_opened_and_left(servers: Person) -> None:
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


async def test_adding_asks_line_by_line_and_comes_back(servers: Person) -> None:
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


async def test_server_is_removed_after_a_confirmation_and_a_resize_is_followed(servers: Person) -> None:
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


async def test_without_a_terminal_it_prints_help(person: Person) -> None:
    done = await person.run("mcp")
    assert done.returncode == 0
    assert b"Usage: toolcrib mcp" in done.stdout
