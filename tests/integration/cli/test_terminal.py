"""What every command does at a terminal: it keeps to its width, means nothing by colour, and completes words."""

import json
import re
import signal
import sys

import pytest

from integration.cli.conftest import Person
from long_tests import takes_long
from terminal import at_terminal
from toolcrib.base.settings import Environment

pytestmark = pytest.mark.anyio


@pytest.fixture
def servers(person: Person) -> Person:
    """A person whose servers have long names and stand in long places."""
    person.home.mkdir(mode=0o700, exist_ok=True)
    names = ("a-server-with-quite-a-long-name", "b")
    written = {name: {"command": "/no/such/program", "enabled": False} for name in names}
    (person.home / "mcp.json").write_text(json.dumps({"mcpServers": written}), encoding="utf-8")
    return person


@pytest.mark.parametrize("command", ["mcp list", "tools list", "agents list", "rules list", "audit", "settings"])
async def test_a_list_is_no_wider_than_the_terminal_and_has_no_colour(servers: Person, command: str) -> None:
    words = [sys.executable, "-m", "toolcrib", *command.split()]
    async with at_terminal(words, {**servers.variables, "NO_COLOR": "1"}, servers.folder, columns=80) as terminal:
        assert await terminal.ended() == 0
    assert not re.search(r"\x1b\[[0-9;]*[34][0-9]m", terminal.written)
    written = re.sub(r"\x1b\[[0-9;]*m", "", terminal.written).split("\r\n")
    assert max(map(len, written)) <= 80


async def test_short_columns_stay_whole_where_long_ones_give_way(servers: Person) -> None:
    words = [sys.executable, "-m", "toolcrib", "mcp", "list"]
    async with at_terminal(words, servers.variables, servers.folder, columns=80) as terminal:
        assert await terminal.ended() == 0
    assert "disabled" in terminal.rows.text
    assert "toolcrib" in terminal.rows.text
    assert "stdio" in terminal.rows.text


@takes_long
async def test_one_mute_server_is_waited_for_aloud_and_ctrl_c_exits_quietly(person: Person) -> None:
    person.home.mkdir(mode=0o700, exist_ok=True)
    mute = {"command": sys.executable, "args": ["-c", "import signal; signal.pause()"]}
    (person.home / "mcp.json").write_text(json.dumps({"mcpServers": {"mute": mute}}), encoding="utf-8")
    for command in ("mcp test mute", "mcp test", "doctor"):
        words = [sys.executable, "-m", "toolcrib", *command.split()]
        async with person.crib(), at_terminal(words, person.variables, person.folder) as terminal:
            await terminal.until("Starting the servers" if command == "doctor" else "Waiting for mute (5 s)")
            terminal.process.send_signal(signal.SIGINT)
            assert await terminal.ended() == 130
        assert "Traceback" not in terminal.written


@pytest.mark.parametrize(
    ("words", "place", "offered"),
    [("toolcrib mc", 1, "mcp"), ("toolcrib mcp en", 2, "enable"), ("toolcrib de", 1, "demo")],
)
async def test_a_shell_completes_commands(person: Person, words: str, place: int, offered: str) -> None:
    asked = {"_TOOLCRIB_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(place)}
    done = await replace_variables(person, asked).run()
    assert offered in done.stdout.decode().split()


@pytest.mark.parametrize("words", ["agents show rev", "chat --agent rev", "tools list --agent rev"])
async def test_every_shell_completes_names(person: Person, words: str) -> None:
    line = f"toolcrib {words}"
    shells = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }
    async with person.crib():
        await person.run("agents", "list")  # the first answer takes longer than a shell waits on a busy machine
        for shell, asked in shells.items():
            done = await replace_variables(person, {"_TOOLCRIB_COMPLETE": f"complete_{shell}", **asked}).run()
            assert "reviewer" in done.stdout.decode(), (shell, done.stderr)


async def test_the_script_for_a_shell_is_shown(person: Person) -> None:
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # not the shell that happens to run the tests
    done = await replace_variables(person, named).run("--show-completion", "bash")
    assert b"_TOOLCRIB_COMPLETE" in done.stdout


def replace_variables(person: Person, more: dict[str, str]) -> Person:
    """The same person with more variables set."""
    return Person(person.folder, Environment({**person.environment, **more}), person.runtime)
