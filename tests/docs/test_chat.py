"""docs/chat.md: its commands, run in order, and its table of chat commands."""

import re
import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.to_thread
import pytest

from e2e.shell import Shell
from toolcrib.base.settings import Environment, Settings
from toolcrib.cli.chat.commands import COMMANDS
from toolcrib.testing.environments import bare_environment
from toolcrib.testing.played import PlayedRunner
from toolcrib.web.run import hold

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "chat.md").read_text(encoding="utf-8")


class Runtime(PlayedRunner):
    """Answers every prompt alike, in place of Claude Code."""

    name = "claude"


@asynccontextmanager
async def serving(home: Path, environment: Environment) -> AsyncGenerator[None]:
    async with hold(Settings(home=home), kind="serve", port=0, environment=environment) as holding:
        holding.crib.runners.add(Runtime({"default": [{"blocks": [{"text": "Here I am."}]}]}))
        yield


async def run(line: str, folder: Path, environment: dict[str, str]) -> str:
    """Run a command line of the page, which must succeed, and return its output."""
    words = shlex.split(line, comments=True)[1:]
    done = await anyio.to_thread.run_sync(Shell(folder, environment).run, *words)
    assert done.returncode == 0, f"{line}: {done.stderr}"
    return done.stdout


@pytest.mark.anyio
async def test_commands_of_the_page_work_in_order(tmp_path: Path) -> None:
    folder, home = tmp_path, tmp_path / "crib"
    bare = bare_environment(folder)
    environment = {**bare, "TOOLCRIB_HOME": str(home)}
    lines: list[str] = re.findall(r"^toolcrib .*$", PAGE, re.MULTILINE)
    assert len(lines) >= 12
    outputs: list[str] = []
    async with serving(home, bare):
        for line in lines:
            known = await run("toolcrib sessions list --json", folder, environment)
            ids: list[str] = re.findall(r'"id": "([0-9a-f]{8})', known)
            outputs.append(await run(line.replace(" ID", f" {ids[-1]}" if ids else " ID"), folder, environment))
    assert outputs[0] == "Here I am.\n"
    assert '"kind": "done"' in outputs[1]
    assert "# A good talk" in (folder / "talk.md").read_text(encoding="utf-8")


def test_table_of_chat_commands_matches_the_code() -> None:
    rows = [f"| `{f'/{name} {command.takes}'.rstrip()}` | {command.help} |" for name, command in COMMANDS.items()]
    assert "\n".join(rows) in PAGE
