"""`toolcrib chat` without a running crib, with the real Claude Code on a scripted model."""

import re
from collections.abc import Generator
from pathlib import Path

import pytest

from integration.cli.conftest import SCRIPTS, CommandLine, Runtime
from long_tests import takes_long
from toolcrib.testing.environments import claude_environment
from toolcrib.testing.scripted_model.server import ScriptedModel

pytestmark = takes_long


@pytest.mark.anyio
async def test_chat_without_a_crib_starts_one_and_its_session_can_be_resumed(
    cli: CommandLine, tmp_path: Path, scripted: ScriptedModel
) -> None:
    cli = CommandLine(cli.folder, claude_environment(tmp_path, scripted.url), Runtime())
    async with cli.chat("greet somebody") as terminal:
        await terminal.until("approve lab/greet? >")
        running = await cli.json("sessions", "list", "--state", "waiting")
        assert len(running) == 1
        terminal.enter("a")
        await terminal.until("It says: Hello, Ada.")
        terminal.enter("which colour")
        await terminal.until("answer 1 of 2 >")
        terminal.enter("2")
        await terminal.until("answer 2 of 2 >")
        terminal.enter("1, 2")
        await terminal.until('"Which sizes?"="S, L"')
        await terminal.until("\n>")
        terminal.enter("please hang")
        await terminal.until("working >")
        terminal.press("\x03")
        await terminal.until("Interrupted.")
        terminal.press("\x04")
        assert await terminal.ended() == 0
        assert terminal.is_plain()
    assert not (cli.home / "run.json").exists()
    (session,) = re.findall(r"--resume ([0-9a-f]{8})", terminal.rows.text)
    resumed = await cli.run("chat", "--resume", session, "tell me a story", "--mode", "dontAsk")
    assert (resumed.returncode, resumed.stdout[:17]) == (0, b"Once upon a time\n"), resumed.stderr


@pytest.fixture
def scripted() -> Generator[ScriptedModel]:
    """A model that plays the scripts of the chat tests."""
    with ScriptedModel() as model:
        for name, script in SCRIPTS.items():
            model.scripts[name] = script
        yield model
