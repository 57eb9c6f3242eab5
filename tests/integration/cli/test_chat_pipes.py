"""`toolcrib chat` and `toolcrib sessions` in scripts and pipes."""

import json
import re
import signal
import sys

import anyio
import pytest

from integration.cli.conftest import CommandLine
from long_tests import takes_long
from toolcrib.model.json import JsonObject
from toolcrib.model.projects import Project

pytestmark = [pytest.mark.anyio, takes_long]


def events(stdout: bytes) -> list[JsonObject]:
    return [json.loads(line) for line in stdout.splitlines()]


async def test_answer_goes_to_stdout_and_tool_calls_to_stderr(cli: CommandLine) -> None:
    async with cli.crib():
        done = await cli.run("chat", "--mode", "acceptEdits", "greet somebody", stdin="not read")
    assert (done.returncode, done.stdout) == (0, b"It says: Hello, Ada.\n")
    assert b'* lab/greet {"name": "Ada"}\n  ok in ' in done.stderr


async def test_chat_in_a_project_uses_the_agent_of_the_project(cli: CommandLine) -> None:
    async with cli.crib() as holding:
        await holding.crib.permissions.projects.save(Project(str(cli.folder), agent="reviewer"))
        assert (await cli.run("chat", "hello")).returncode == 0
        (session,) = await cli.json("sessions", "list")
    assert session["agentId"] == "reviewer"


async def test_each_line_of_a_pipe_is_a_prompt_in_one_session(cli: CommandLine) -> None:
    async with cli.crib():
        done = await cli.run("chat", stdin="tell me a story\n\nand then?\n")
        assert done.stdout.decode() == "Once upon a time\nthere was \\u{1b}[31m\\u{202e}a crib.\nFine, you said that.\n"
        assert len(await cli.json("sessions", "list")) == 1


async def test_dash_reads_the_whole_pipe_as_one_prompt(cli: CommandLine) -> None:
    async with cli.crib():
        done = await cli.run("chat", "-", "--json", stdin="one\ntwo\n")
    assert [event["content"] for event in events(done.stdout) if event["kind"] == "user_message"] == ["one\ntwo"]


async def test_json_output_has_every_event_in_order(cli: CommandLine) -> None:
    async with cli.crib():
        done = await cli.run("chat", "--json", "--mode", "acceptEdits", "greet")
    printed = events(done.stdout)
    assert done.returncode == 0
    assert [event["seq"] for event in printed] == list(range(printed[0]["seq"], printed[0]["seq"] + len(printed)))
    assert printed[0]["kind"] == "user_message"
    assert printed[-1]["kind"] == "done"
    kinds = [event["kind"] for event in printed]
    assert kinds.index("tool_call_start") < kinds.index("tool_call_end") < kinds.index("tool_result")


async def test_pending_approval_prints_the_command_that_approves_it(cli: CommandLine) -> None:
    ended: list[int] = []
    async with cli.crib(), anyio.create_task_group() as tasks:

        async def chat() -> None:
            done = await cli.run("chat", "greet")
            assert re.search(rb"waiting: answer with `toolcrib approvals approve \w+`", done.stderr)
            ended.append(done.returncode)

        tasks.start_soon(chat)
        waiting = await first_pending(cli)
        done = await cli.run("approvals", "approve", str(waiting["id"]))
        assert done.returncode == 0
    assert ended == [0]


async def first_pending(cli: CommandLine) -> JsonObject:
    """Return the first pending approval or question, once there is one."""
    with anyio.fail_after(30):
        while not (found := await cli.json("approvals", "list")):
            pass
    return found[0]


async def test_questions_are_listed_and_answered_by_command(cli: CommandLine) -> None:
    answers: list[bytes] = []
    async with cli.crib(), anyio.create_task_group() as tasks:

        async def chat() -> None:
            answers.append((await cli.run("chat", "which colour")).stdout)

        tasks.start_soon(chat)
        waiting = await first_pending(cli)
        assert waiting["kind"] == "question"
        shown = (await cli.run("approvals", "list")).stdout.decode()
        assert "asks:      Which colour?\n  - Red: warm\n  - Blue: cold" in shown
        assert "Which sizes? (multiple choices allowed)" in shown
        wrong = await cli.run("approvals", "answer", str(waiting["id"]), "--answer", "Blue")
        assert (wrong.returncode, b"does not match a question" in wrong.stderr) == (2, True)
        options = ["--answer", "Which colour?=Blue", "--answer", "Which sizes?=S", "--answer", "Which sizes?=L"]
        done = await cli.run("approvals", "answer", str(waiting["id"]), *options)
        assert (done.returncode, done.stdout) == (0, b"Answered.\n")
    assert answers == [b"It says: {'Which colour?': 'Blue', 'Which sizes?': 'S, L'}\n"]


async def test_failed_answer_fails_the_command(cli: CommandLine) -> None:
    async with cli.crib():
        done = await cli.run("chat", "refuse")
    assert done.returncode != 0
    assert done.stdout == b""
    assert b"error: invalid key" in done.stderr


async def test_sigint_interrupts_the_session_and_ends_the_command(cli: CommandLine) -> None:
    async with cli.crib() as holding, cli.client(holding) as client:
        command = [sys.executable, "-m", "toolcrib", "chat", "hang"]
        async with await anyio.open_process(command, cwd=cli.folder, env=cli.variables) as process:
            with anyio.fail_after(30):
                while not any(each["state"] == "running" for each in await client.sessions.list()):
                    assert process.returncode is None
                process.send_signal(signal.SIGINT)
                assert await process.wait() == 128 + signal.SIGINT
        (session,) = await client.sessions.list()
        assert session["state"] == "idle"


async def test_session_commands_act_on_the_sessions_of_the_crib(cli: CommandLine) -> None:
    async with cli.crib():
        await cli.run("chat", "a first word")
        (session,) = await cli.json("sessions", "list")
        short = str(session["id"])[:8]
        assert (await cli.json("sessions", "rename", short, "A talk"))["title"] == "A talk"
        shown = (await cli.run("sessions", "show", short)).stdout.decode()
        assert "title:       A talk" in shown
        assert f"toolcrib chat --resume {short}" in shown
        fork = await cli.json("sessions", "fork", short, "--title", "Another talk")
        sent = await cli.run("sessions", "send", str(fork["id"]), "a second word")
        assert (sent.returncode, sent.stdout) == (0, b"Fine, you said that.\n")
        queued = await cli.json("sessions", "send", short, "a third word", "--no-wait")
        assert queued["queued"] is False
        assert (await cli.json("sessions", "interrupt", str(fork["id"]))) == {"interrupted": False}
        exported = (await cli.run("sessions", "export", str(fork["id"]))).stdout
        assert [each["content"] for each in events(exported) if each["kind"] == "user_message"] == [
            "a first word",
            "a second word",
        ]
        written = await cli.run("sessions", "export", short, "--format", "markdown", "--output", "talk.md")
        assert (written.returncode, written.stdout) == (0, b"")
        assert "a first word" in (cli.folder / "talk.md").read_text(encoding="utf-8")
        assert (await cli.run("sessions", "delete", short)).returncode == 2
        assert (await cli.run("sessions", "delete", short, "--yes")).returncode == 0
        assert [each["id"] for each in await cli.json("sessions", "list")] == [fork["id"]]
        assert (await cli.run("sessions", "show", short)).returncode == 3
        table = (await cli.run("sessions", "list", "--cwd", ".")).stdout.decode()
        assert "Another talk" in table


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (["sessions", "list", "--state", "asleep"], b"'asleep' is not a state"),
        (["sessions", "export", "x", "--format", "pdf"], b"'pdf' is not a format"),
        (["chat", "--agent", "a", "--resume", "b"], b"either --agent or --resume"),
    ],
)
async def test_invalid_options_are_refused_before_the_crib_starts(
    cli: CommandLine, line: list[str], error: bytes
) -> None:
    done = await cli.run(*line)
    assert (done.returncode, error in done.stderr) == (2, True)


async def test_send_without_waiting_needs_a_running_crib(cli: CommandLine) -> None:
    done = await cli.run("sessions", "send", "x", "hello", "--no-wait")
    assert (done.returncode, b"No crib is running" in done.stderr) == (2, True)
