"""`toolcrib chat` at a terminal, as a person sees it, with a crib whose agent plays scripts."""

import re
import signal
import sys
from contextlib import AsyncExitStack

import anyio
import pytest

from integration.cli.conftest import Person
from long_tests import takes_long
from terminal import Terminal
from toolcrib.model.json import JsonObject

pytestmark = [pytest.mark.anyio, takes_long]

STYLES = re.compile("\x1b\\[[0-9;]*m")


async def called(person: Person) -> list[JsonObject]:
    """The outcomes of calls of the laboratory's tools, the newest first."""
    records: list[JsonObject] = await person.json("audit", "--server", "lab")
    return [record for record in records if record["phase"] == "outcome"]


async def left(terminal: Terminal) -> None:
    terminal.press("\x04")
    assert await terminal.ended() == 0
    assert terminal.is_plain()


async def test_an_answer_streams_in_with_thoughts_and_nothing_in_it_is_obeyed(person: Person) -> None:
    async with person.crib(), person.chat("tell me a story") as terminal:
        shown = await terminal.until("a crib.")
        assert "> tell me a story" in shown
        assert "  I make one up.\n  Once upon a time\n  there was \\u{1b}[31m\\u{202e}a crib." in shown
        assert "\x1b[2m  I make one up." in terminal.written
        assert terminal.rows.obeyed == []
        await left(terminal)
    assert re.search(r"Resume this session with `toolcrib chat --resume [0-9a-f]{8}`", terminal.rows.text)


async def test_without_colours_nothing_is_styled(person: Person) -> None:
    async with person.crib(), person.chat("tell me a story", NO_COLOR="1") as terminal:
        await terminal.until("a crib.")
        assert not STYLES.search(terminal.written)


async def test_a_call_is_approved_in_place_and_runs(person: Person) -> None:
    async with person.crib(), person.chat("greet") as terminal:
        shown = await terminal.until("approve lab/greet? >")
        assert "? lab/greet asks for approval." in shown
        assert '    "name": "Ada"' in shown
        terminal.enter("a")
        assert "approved by owner" in await terminal.until("It says: Hello, Ada.")
        await left(terminal)
        assert [record["isError"] for record in await called(person)] == [False]


async def test_a_call_is_denied_with_a_reason_that_the_agent_is_told(person: Person) -> None:
    async with person.crib(), person.chat("greet") as terminal:
        await terminal.until("approve lab/greet? >")
        terminal.enter("deny not before noon")
        await terminal.until("It says: A person denied this call: not before noon")


async def test_what_destroys_is_not_approved_by_one_key(person: Person) -> None:
    async with person.crib(), person.chat("wipe") as terminal:
        await terminal.until("approve lab/wipe? >")
        terminal.enter("a")
        await terminal.until("Invalid answer.")
        terminal.enter("approve")
        await terminal.until("It says: wiped /x")


async def test_approving_for_good_says_which_rule_it_writes_and_nothing_is_asked_again(person: Person) -> None:
    async with person.crib(), person.chat("greet") as terminal:
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
        rules: list[JsonObject] = await person.json("rules", "list")
        assert "lab/greet" in [rule["pattern"] for rule in rules]


async def test_arguments_are_edited_before_the_call_runs_with_them(person: Person) -> None:
    async with person.crib(), person.chat("greet") as terminal:
        await terminal.until("approve lab/greet? >")
        terminal.enter("e")
        await terminal.until('arguments of lab/greet? > {"name": "Ada"}')
        terminal.enter("\x15nonsense")
        await terminal.until("The arguments are not JSON")
        terminal.enter('\x15{"name": "Grace"}')
        await terminal.until("It says: Hello, Grace.")


async def test_what_is_typed_while_a_question_arrives_stays_a_message_and_answers_nothing(person: Person) -> None:
    async with person.crib(), person.chat("greet") as terminal:
        await terminal.until("? lab/greet asks for approval.")
        terminal.press("wipe a dra")
        await terminal.until("wipe a dra")
        await terminal.until("approve lab/greet? >")
        terminal.enter("d no")
        await terminal.until("It says: A person denied")
        await terminal.until("> wipe a dra")


async def test_an_answer_given_elsewhere_frees_the_row(person: Person) -> None:
    async with person.crib() as holding, person.chat("greet") as terminal:
        await terminal.until("approve lab/greet? >")
        async with person.client(holding) as client:
            (waiting,) = await client.permissions.approvals(status="pending")
            await client.permissions.answer(str(waiting["id"]), {"decision": "approve"})
        await terminal.until("It says: Hello, Ada.")
        await terminal.until("\n>")
        terminal.enter("and on")
        await terminal.until("Fine, you said that.")


async def test_questions_of_the_agent_are_answered_by_number_and_in_words(person: Person) -> None:
    async with person.crib(), person.chat("which colour") as terminal:
        assert "  1. Red: warm\n  2. Blue: cold" in await terminal.until("answer 1 of 2 >")
        terminal.enter("3")
        await terminal.until("Type the number of a choice")
        terminal.enter("2")
        await terminal.until("answer 2 of 2 >")
        terminal.enter("1, l")
        await terminal.until("It says: {'Which colour?': 'Blue', 'Which sizes?': 'S, L'}")


async def test_messages_typed_during_a_turn_wait_and_ctrl_c_ends_the_turn_only(person: Person) -> None:
    async with person.crib(), person.chat("hang") as terminal:
        await terminal.until("working >")
        terminal.enter("and then")
        await terminal.until("(queued until")
        terminal.press("\x03")
        await terminal.until("Interrupted.")
        await terminal.until("Fine, you said that.")
        await left(terminal)


async def test_ctrl_c_cancels_a_command_that_waits_and_the_chat_goes_on(person: Person) -> None:
    async with person.crib(), person.chat() as terminal:
        terminal.enter(f"/mcp add mute {sys.executable} -c 'import signal; signal.pause()'")
        await terminal.until('Added "mute"')
        terminal.enter("/mcp test mute")
        await terminal.until("Connecting to mute…")
        terminal.press("\x03")
        await terminal.until("Cancelled.")
        terminal.enter("hello")
        await terminal.until("Fine, you said that.")
        await left(terminal)


async def test_ctrl_c_twice_leaves_and_the_session_goes_on_when_it_is_resumed(person: Person) -> None:
    async with person.crib():
        async with person.chat("a first word") as terminal:
            await terminal.until("Fine, you said that.")
            terminal.press("\x03")
            await terminal.until("Press Ctrl-C again to quit")
            terminal.press("\x03")
            assert await terminal.ended() == 130
            assert "Traceback" not in terminal.written
        resumed = re.findall(r"--resume ([0-9a-f]{8})", terminal.rows.text)
        async with person.chat("--resume", resumed[0], "--mode", "plan") as terminal:
            shown = await terminal.until("Fine, you said that.")
            assert f"Session {resumed[0]}, mode plan" in shown
            assert "> a first word" in shown
            terminal.enter("a second word")
            await terminal.until("> a second word")
            await terminal.until("Fine, you said that.")


async def test_who_comes_back_finds_what_still_waits(person: Person) -> None:
    async with person.crib() as holding:
        async with person.client(holding) as client:
            session = await client.sessions.create()
            await client.sessions.send(str(session["id"]), "greet")
            with anyio.fail_after(30):
                async for event in client.sessions.events(str(session["id"]), 0):
                    if event.kind == "approval_required":
                        break
        async with person.chat("--resume", str(session["id"])) as terminal:
            await terminal.until("approve lab/greet? >")
            terminal.enter("a")
            await terminal.until("It says: Hello, Ada.")


async def test_a_session_that_fails_says_why(person: Person) -> None:
    async with person.crib(), person.chat("refuse") as terminal:
        assert (await terminal.until("error: ")).count("error") == 1
        await terminal.until("invalid key")


async def test_the_commands_of_a_chat(person: Person) -> None:
    async with person.crib(), person.chat() as terminal:
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
    assert (person.folder / "talk.md").read_text(encoding="utf-8").startswith("# A good talk")


async def test_a_chat_goes_on_where_it_was_when_the_crib_comes_back(person: Person) -> None:
    crib = AsyncExitStack()
    await crib.enter_async_context(person.crib())
    async with person.chat("a first word") as terminal:
        await terminal.until("Fine, you said that.")
        await terminal.until("\n>")
        terminal.enter("hang")
        await terminal.until("working >")
        await crib.aclose()
        await terminal.until("Reconnecting")
        async with person.crib():
            terminal.enter("a third word")
            await terminal.until("> a third word")
            await terminal.until("Fine, you said that.")
            await left(terminal)
    for words in ("> a first word", "> hang", "> a third word", "interrupted: "):
        assert terminal.rows.text.count(words) == 1, terminal.rows.text


async def test_a_session_that_is_deleted_ends_its_chat(person: Person) -> None:
    async with person.crib() as holding, person.chat("hello") as terminal:
        await terminal.until("Fine, you said that.")
        async with person.client(holding) as client:
            (session,) = await client.sessions.list()
            await client.sessions.delete(str(session["id"]))
        await terminal.until("error: The session was deleted in the meantime.")
        assert await terminal.ended() == 3


async def test_a_signal_ends_the_chat_and_leaves_the_terminal_as_it_was(person: Person) -> None:
    async with person.crib(), person.chat("hang") as terminal:
        await terminal.until("working >")
        terminal.process.terminate()
        assert await terminal.ended() == 128 + signal.SIGTERM
        assert terminal.is_plain()


@pytest.mark.parametrize(
    ("arguments", "said"), [(["--resume", "nobody"], "There is no session"), (["--agent", "nobody"], "nobody")]
)
async def test_what_cannot_be_begun_is_told_and_not_begun(person: Person, arguments: list[str], said: str) -> None:
    async with person.crib(), person.chat(*arguments) as terminal:
        assert await terminal.ended() == 3
    assert "error: " in terminal.rows.text
    assert said in terminal.rows.text
