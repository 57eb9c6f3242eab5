"""`toolcrib chat` in a terminal, on a crib whose agent plays scripts."""

import re
import signal
import sys
from contextlib import AsyncExitStack

import anyio
import pytest

from integration.cli.conftest import CommandLine
from long_tests import takes_long
from terminal import Terminal
from toolcrib.model.json import JsonObject

pytestmark = [pytest.mark.anyio, takes_long]

STYLES = re.compile("\x1b\\[[0-9;]*m")


async def lab_outcomes(cli: CommandLine) -> list[JsonObject]:
    """Return the outcomes of calls of the lab tools, newest first."""
    records: list[JsonObject] = await cli.json("audit", "--server", "lab")
    return [record for record in records if record["phase"] == "outcome"]


async def quit_chat(terminal: Terminal) -> None:
    terminal.press("\x04")
    assert await terminal.ended() == 0
    assert terminal.is_plain()


async def test_answer_streams_with_its_thinking_and_escaped_control_characters(cli: CommandLine) -> None:
    async with cli.crib(), cli.chat("tell me a story") as terminal:
        shown = await terminal.until("a crib.")
        assert "> tell me a story" in shown
        assert "  I make one up.\n  Once upon a time\n  there was \\u{1b}[31m\\u{202e}a crib." in shown
        assert "\x1b[2m  I make one up." in terminal.written
        assert terminal.rows.obeyed == []
        await quit_chat(terminal)
    assert re.search(r"Resume this session with `toolcrib chat --resume [0-9a-f]{8}`", terminal.rows.text)


async def test_no_color_removes_all_styles(cli: CommandLine) -> None:
    async with cli.crib(), cli.chat("tell me a story", NO_COLOR="1") as terminal:
        await terminal.until("a crib.")
        assert not STYLES.search(terminal.written)


async def test_call_is_approved_inline_and_runs(cli: CommandLine) -> None:
    async with cli.crib(), cli.chat("greet") as terminal:
        shown = await terminal.until("approve lab/greet? >")
        assert "? lab/greet asks for approval." in shown
        assert '    "name": "Ada"' in shown
        terminal.enter("a")
        assert "approved by owner" in await terminal.until("It says: Hello, Ada.")
        await quit_chat(terminal)
        assert [record["isError"] for record in await lab_outcomes(cli)] == [False]


async def test_agent_receives_the_reason_of_a_denied_call(cli: CommandLine) -> None:
    async with cli.crib(), cli.chat("greet") as terminal:
        await terminal.until("approve lab/greet? >")
        terminal.enter("deny not before noon")
        await terminal.until("It says: A person denied this call: not before noon")


async def test_destructive_call_cannot_be_approved_with_one_key(cli: CommandLine) -> None:
    async with cli.crib(), cli.chat("wipe") as terminal:
        await terminal.until("approve lab/wipe? >")
        terminal.enter("a")
        await terminal.until("Invalid answer.")
        terminal.enter("approve")
        await terminal.until("It says: wiped /x")


async def test_lasting_approval_names_its_rule_and_later_calls_skip_the_approval(cli: CommandLine) -> None:
    async with cli.crib(), cli.chat("greet") as terminal:
        shown = " ".join((await terminal.until("approve lab/greet? >")).split())
        assert (
            "w writes the rule: Allow every call of lab/greet, with any arguments, for sessions without an agent"
            in shown
        )
        terminal.enter("w")
        await terminal.until("It says: Hello")
        terminal.enter("greet again")
        await terminal.until("> greet again")
        assert "asks for approval" not in await terminal.until("It says: Hello")
        assert re.search(r"Added rule \S+: allow lab/greet if ", terminal.rows.text)
        rules: list[JsonObject] = await cli.json("rules", "list")
        assert "lab/greet" in [rule["pattern"] for rule in rules]


async def test_edited_arguments_replace_those_of_the_call(cli: CommandLine) -> None:
    async with cli.crib(), cli.chat("greet") as terminal:
        await terminal.until("approve lab/greet? >")
        terminal.enter("e")
        await terminal.until('arguments of lab/greet? > {"name": "Ada"}')
        terminal.enter("\x15nonsense")
        await terminal.until("The arguments are not JSON")
        terminal.enter('\x15{"name": "Grace"}')
        await terminal.until("It says: Hello, Grace.")


async def test_text_typed_as_an_approval_arrives_stays_a_message(cli: CommandLine) -> None:
    async with cli.crib(), cli.chat("greet") as terminal:
        await terminal.until("? lab/greet asks for approval.")
        terminal.press("wipe a dra")
        await terminal.until("wipe a dra")
        await terminal.until("approve lab/greet? >")
        terminal.enter("d no")
        await terminal.until("It says: A person denied")
        await terminal.until("> wipe a dra")


async def test_approval_answered_elsewhere_returns_to_the_prompt(cli: CommandLine) -> None:
    async with cli.crib() as holding, cli.chat("greet") as terminal:
        await terminal.until("approve lab/greet? >")
        async with cli.client(holding) as client:
            (waiting,) = await client.permissions.approvals(status="pending")
            await client.permissions.answer(str(waiting["id"]), {"decision": "approve"})
        await terminal.until("It says: Hello, Ada.")
        await terminal.until("\n>")
        terminal.enter("and on")
        await terminal.until("Fine, you said that.")


async def test_questions_of_the_agent_are_answered_by_number_and_by_letter(cli: CommandLine) -> None:
    async with cli.crib(), cli.chat("which colour") as terminal:
        assert "  1. Red: warm\n  2. Blue: cold" in await terminal.until("answer 1 of 2 >")
        terminal.enter("3")
        await terminal.until("Type the number of a choice")
        terminal.enter("2")
        await terminal.until("answer 2 of 2 >")
        terminal.enter("1, l")
        await terminal.until("It says: {'Which colour?': 'Blue', 'Which sizes?': 'S, L'}")


async def test_messages_are_queued_during_a_turn_and_ctrl_c_ends_only_the_turn(cli: CommandLine) -> None:
    async with cli.crib(), cli.chat("hang") as terminal:
        await terminal.until("working >")
        terminal.enter("and then")
        await terminal.until("(queued until")
        terminal.press("\x03")
        await terminal.until("Interrupted.")
        await terminal.until("Fine, you said that.")
        await quit_chat(terminal)


async def test_ctrl_c_cancels_a_waiting_command_and_the_chat_continues(cli: CommandLine) -> None:
    async with cli.crib(), cli.chat() as terminal:
        terminal.enter(f"/mcp add mute {sys.executable} -c 'import signal; signal.pause()'")
        await terminal.until('Added "mute"')
        terminal.enter("/mcp test mute")
        await terminal.until("Connecting to mute…")
        terminal.press("\x03")
        await terminal.until("Cancelled.")
        terminal.enter("hello")
        await terminal.until("Fine, you said that.")
        await quit_chat(terminal)


async def test_ctrl_c_twice_quits_and_the_session_can_be_resumed(cli: CommandLine) -> None:
    async with cli.crib():
        async with cli.chat("a first word") as terminal:
            await terminal.until("Fine, you said that.")
            terminal.press("\x03")
            await terminal.until("Press Ctrl-C again to quit")
            terminal.press("\x03")
            assert await terminal.ended() == 130
            assert "Traceback" not in terminal.written
        resumed = re.findall(r"--resume ([0-9a-f]{8})", terminal.rows.text)
        async with cli.chat("--resume", resumed[0], "--mode", "plan") as terminal:
            shown = await terminal.until("Fine, you said that.")
            assert f"Session {resumed[0]}, mode plan" in shown
            assert "> a first word" in shown
            terminal.enter("a second word")
            await terminal.until("> a second word")
            await terminal.until("Fine, you said that.")


async def test_resumed_session_shows_its_pending_approval(cli: CommandLine) -> None:
    async with cli.crib() as holding:
        async with cli.client(holding) as client:
            session = await client.sessions.create()
            await client.sessions.send(str(session["id"]), "greet")
            with anyio.fail_after(30):
                async for event in client.sessions.events(str(session["id"]), 0):
                    if event.kind == "approval_required":
                        break
        async with cli.chat("--resume", str(session["id"])) as terminal:
            await terminal.until("approve lab/greet? >")
            terminal.enter("a")
            await terminal.until("It says: Hello, Ada.")


async def test_failed_session_shows_its_error(cli: CommandLine) -> None:
    async with cli.crib(), cli.chat("refuse") as terminal:
        assert (await terminal.until("error: ")).count("error") == 1
        await terminal.until("invalid key")


async def test_chat_commands_print_their_results(cli: CommandLine) -> None:
    async with cli.crib(), cli.chat() as terminal:
        for line, shown in (
            ("/mcp", "No servers found."),
            ("/mcp add clock /no/such/program", 'Added "clock" to'),
            ("/mcp test clock", "clock: setup problem."),
            ("/mcp disable clock", 'Disabled "clock"'),
            ("/mcp enable clock", 'Enabled "clock"'),
            ("/mcp relaod clock", "Did you mean `/mcp reload`?"),
            ("/mcp remove", "Type `/mcp remove NAME`."),
            ("/mcp remove nothing", "error: "),
            ("/mcp remove clock", 'Removed "clock"'),
            ("/tools greet", "lab/greet  lab_greet"),
            ("/why lab/wipe", "lab/wipe requires approval (ask)."),
            ("/mode plan", "Mode: plan."),
            ("/mode sideways", "error: "),
            ("/model opus", "Model: opus."),
            ("/title A good talk", "Renamed the session to A good talk."),
            ("/sessions", "A good talk"),
            ("/cost", "0.0000 USD, 0 tokens in"),
            ("/export talk.md", "Wrote talk.md."),
            ("/export talk.md", "talk.md already exists."),
            ("/why", "Type `/why SERVER/TOOL`."),
            ("/dance", "Unknown command /dance."),
            ("/tols greet", "Did you mean /tools?"),
            ("//slash", "> /slash"),
            ("/help", "/export [FILE]"),
        ):
            terminal.enter(line)
            await terminal.until(shown)
        terminal.enter("/fork")
        await terminal.until("New session with a copy of this conversation")
        terminal.enter("/agent reviewer")
        await terminal.until("New session with agent reviewer")
        terminal.enter("hello")
        await terminal.until("Fine, you said that.")
        terminal.enter("/quit")
        assert await terminal.ended() == 0
    assert (cli.folder / "talk.md").read_text(encoding="utf-8").startswith("# A good talk")


async def test_chat_reconnects_after_the_crib_restarts_without_repeating_messages(cli: CommandLine) -> None:
    crib = AsyncExitStack()
    await crib.enter_async_context(cli.crib())
    async with cli.chat("a first word") as terminal:
        await terminal.until("Fine, you said that.")
        await terminal.until("\n>")
        terminal.enter("hang")
        await terminal.until("working >")
        await crib.aclose()
        await terminal.until("Reconnecting")
        async with cli.crib():
            terminal.enter("a third word")
            await terminal.until("> a third word")
            await terminal.until("Fine, you said that.")
            await quit_chat(terminal)
    for words in ("> a first word", "> hang", "> a third word", "interrupted: "):
        assert terminal.rows.text.count(words) == 1, terminal.rows.text


async def test_deleted_session_ends_its_chat(cli: CommandLine) -> None:
    async with cli.crib() as holding, cli.chat("hello") as terminal:
        await terminal.until("Fine, you said that.")
        async with cli.client(holding) as client:
            (session,) = await client.sessions.list()
            await client.sessions.delete(str(session["id"]))
        await terminal.until("error: The session was deleted in the meantime.")
        assert await terminal.ended() == 3


async def test_signal_ends_the_chat_and_restores_the_terminal(cli: CommandLine) -> None:
    async with cli.crib(), cli.chat("hang") as terminal:
        await terminal.until("working >")
        terminal.process.terminate()
        assert await terminal.ended() == 128 + signal.SIGTERM
        assert terminal.is_plain()


@pytest.mark.parametrize(
    ("arguments", "error"), [(["--resume", "nobody"], "There is no session"), (["--agent", "nobody"], "nobody")]
)
async def test_unknown_session_or_agent_ends_the_chat_with_an_error(
    cli: CommandLine, arguments: list[str], error: str
) -> None:
    async with cli.crib(), cli.chat(*arguments) as terminal:
        assert await terminal.ended() == 3
    assert "error: " in terminal.rows.text
    assert error in terminal.rows.text
