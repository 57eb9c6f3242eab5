"""Output of commands in a terminal: its width and colours, interruption, and shell completion."""

import json
import re
import signal
import sys

import pytest

from integration.cli.conftest import CommandLine
from long_tests import takes_long
from terminal import at_terminal
from toolcrib.base.settings import Environment

pytestmark = pytest.mark.anyio


@pytest.fixture
def servers(cli: CommandLine) -> CommandLine:
    """A home whose servers have long names."""
    cli.home.mkdir(mode=0o700, exist_ok=True)
    names = ("a-server-with-quite-a-long-name", "b")
    written = {name: {"command": "/no/such/program", "enabled": False} for name in names}
    (cli.home / "mcp.json").write_text(json.dumps({"mcpServers": written}), encoding="utf-8")
    return cli


@pytest.mark.parametrize("command", ["mcp list", "tools list", "agents list", "rules list", "audit", "settings"])
async def test_list_fits_the_terminal_and_has_no_colour(servers: CommandLine, command: str) -> None:
    words = [sys.executable, "-m", "toolcrib", *command.split()]
    async with at_terminal(words, {**servers.variables, "NO_COLOR": "1"}, servers.folder, columns=80) as terminal:
        assert await terminal.ended() == 0
    assert not re.search(r"\x1b\[[0-9;]*[34][0-9]m", terminal.written)
    written = re.sub(r"\x1b\[[0-9;]*m", "", terminal.written).split("\r\n")
    assert max(map(len, written)) <= 80


async def test_short_columns_stay_whole_when_long_ones_are_cut(servers: CommandLine) -> None:
    words = [sys.executable, "-m", "toolcrib", "mcp", "list"]
    async with at_terminal(words, servers.variables, servers.folder, columns=80) as terminal:
        assert await terminal.ended() == 0
    assert "disabled" in terminal.rows.text
    assert "toolcrib" in terminal.rows.text
    assert "stdio" in terminal.rows.text


@takes_long
async def test_waiting_for_a_silent_server_is_shown_and_ctrl_c_exits_without_a_traceback(cli: CommandLine) -> None:
    cli.home.mkdir(mode=0o700, exist_ok=True)
    mute = {"command": sys.executable, "args": ["-c", "import signal; signal.pause()"]}
    (cli.home / "mcp.json").write_text(json.dumps({"mcpServers": {"mute": mute}}), encoding="utf-8")
    for command in ("mcp test mute", "mcp test", "doctor"):
        words = [sys.executable, "-m", "toolcrib", *command.split()]
        async with cli.crib(), at_terminal(words, cli.variables, cli.folder) as terminal:
            await terminal.until("Starting the servers" if command == "doctor" else "Waiting for mute (5 s)")
            terminal.process.send_signal(signal.SIGINT)
            assert await terminal.ended() == 130
        assert "Traceback" not in terminal.written


@pytest.mark.parametrize(
    ("words", "place", "offered"),
    [("toolcrib mc", 1, "mcp"), ("toolcrib mcp en", 2, "enable"), ("toolcrib de", 1, "demo")],
)
async def test_shell_completes_commands(cli: CommandLine, words: str, place: int, offered: str) -> None:
    variables = {"_TOOLCRIB_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(place)}
    done = await replace_variables(cli, variables).run()
    assert offered in done.stdout.decode().split()


@pytest.mark.parametrize("words", ["agents show rev", "chat --agent rev", "tools list --agent rev"])
async def test_each_shell_completes_agent_names(cli: CommandLine, words: str) -> None:
    line = f"toolcrib {words}"
    shells = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }
    async with cli.crib():
        await cli.run("agents", "list")  # the first answer takes longer than a shell waits on a busy machine
        for shell, variables in shells.items():
            done = await replace_variables(cli, {"_TOOLCRIB_COMPLETE": f"complete_{shell}", **variables}).run()
            assert "reviewer" in done.stdout.decode(), (shell, done.stderr)


async def test_completion_script_is_printed(cli: CommandLine) -> None:
    variables = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # not the shell that happens to run the tests
    done = await replace_variables(cli, variables).run("--show-completion", "bash")
    assert b"_TOOLCRIB_COMPLETE" in done.stdout


def replace_variables(cli: CommandLine, more: dict[str, str]) -> CommandLine:
    """Return the same command line with more variables."""
    return CommandLine(cli.folder, Environment({**cli.environment, **more}), cli.runtime)
