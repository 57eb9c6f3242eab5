"""`toolcrib chat` and `toolcrib sessions` without a terminal: for scripts and pipes."""

import json
import re
import signal
import sys

import anyio
import pytest

from integration.cli.conftest import Person
from long_tests import takes_long
from toolcrib.model.json import JsonObject
from toolcrib.model.projects import Project

pytestmark = [pytest.mark.anyio, takes_long]


def events(stdout: bytes) -> list[JsonObject]:
    return [json.loads(line) for line in stdout.splitlines()]


async def test_a_prompt_is_answered_on_standard_output_and_talk_goes_elsewhere(person: Person) -> None:
    async with person.crib():
        done = await person.run("chat", "--mode", "acceptEdits", "greet somebody", stdin="not read")
    assert (done.returncode, done.stdout) == (0, b"It says: Hello, Ada.\n")
    assert b'* lab/greet {"name": "Ada"}\n  ok in ' in done.stderr


async def test_a_chat_in_a_project_is_with_the_projects_agent(person: Person) -> None:
    async with person.crib() as holding:
        await holding.crib.permissions.projects.save(Project(str(person.folder), agent="reviewer"))
        assert (await person.run("chat", "hello")).returncode == 0
        (session,) = await person.json("sessions", "list")
    assert session["agentId"] == "reviewer"


async def test_every_line_of_a_pipe_is_a_prompt_answered_in_one_session(person: Person) -> None:
    async with person.crib():
        done = await person.run("chat", stdin="tell me a story\n\nand then?\n")
        assert done.stdout.decode() == "Once upon a time\nthere was \\u{1b}[31m\\u{202e}a crib.\nFine, you said that.\n"
        assert len(await person.json("sessions", "list")) == 1


async def test_a_dash_takes_all_of_a_pipe_as_one_prompt(person: Person) -> None:
    async with person.crib():
        done = await person.run("chat", "-", "--json", stdin="one\ntwo\n")
    assert [event["content"] for event in events(done.stdout) if event["kind"] == "user_message"] == ["one\ntwo"]


async def test_with_json_every_event_is_a_line_in_order_without_gap(person: Person) -> None:
    async with person.crib():
        done = await person.run("chat", "--json", "--mode", "acceptEdits", "greet")
    told = events(done.stdout)
    assert done.returncode == 0
    assert [event["seq"] for event in told] == list(range(told[0]["seq"], told[0]["seq"] + len(told)))
    assert told[0]["kind"] == "user_message"
    assert told[-1]["kind"] == "done"
    kinds = [event["kind"] for event in told]
    assert kinds.index("tool_call_start") < kinds.index("tool_call_end") < kinds.index("tool_result")


async def test_what_waits_for_a_person_is_told_with_the_command_that_answers_it(person: Person) -> None:
    ended: list[int] = []
    async with person.crib(), anyio.create_task_group() as tasks:

        async def chat() -> None:
            done = await person.run("chat", "greet")
            assert re.search(rb"waiting: answer with `toolcrib approvals approve \w+`", done.stderr)
            ended.append(done.returncode)

        tasks.start_soon(chat)
        waiting = await waited(person)
        done = await person.run("approvals", "approve", str(waiting["id"]))
        assert done.returncode == 0
    assert ended == [0]


async def waited(person: Person) -> JsonObject:
    """What waits for a person, once something does."""
    with anyio.fail_after(30):
        while not (found := await person.json("approvals", "list")):
            pass
    return found[0]


async def test_questions_of_agents_are_listed_and_answered_by_command(person: Person) -> None:
    said: list[bytes] = []
    async with person.crib(), anyio.create_task_group() as tasks:

        async def chat() -> None:
            said.append((await person.run("chat", "which colour")).stdout)

        tasks.start_soon(chat)
        waiting = await waited(person)
        assert waiting["kind"] == "question"
        shown = (await person.run("approvals", "list")).stdout.decode()
        assert "asks:      Which colour?\n  - Red: warm\n  - Blue: cold" in shown
        assert "Which sizes? (multiple choices allowed)" in shown
        wrong = await person.run("approvals", "answer", str(waiting["id"]), "--answer", "Blue")
        assert (wrong.returncode, b"does not match a question" in wrong.stderr) == (2, True)
        given = ["--answer", "Which colour?=Blue", "--answer", "Which sizes?=S", "--answer", "Which sizes?=L"]
        done = await person.run("approvals", "answer", str(waiting["id"]), *given)
        assert (done.returncode, done.stdout) == (0, b"Answered.\n")
    assert said == [b"It says: {'Which colour?': 'Blue', 'Which sizes?': 'S, L'}\n"]


async def test_a_failed_answer_is_a_failed_command(person: Person) -> None:
    async with person.crib():
        done = await person.run("chat", "refuse")
    assert done.returncode != 0
    assert done.stdout == b""
    assert b"error: invalid key" in done.stderr


async def test_a_signal_ends_the_answer_too(person: Person) -> None:
    async with person.crib() as holding, person.client(holding) as client:
        command = [sys.executable, "-m", "toolcrib", "chat", "hang"]
        async with await anyio.open_process(command, cwd=person.folder, env=person.variables) as process:
            with anyio.fail_after(30):
                while not any(each["state"] == "running" for each in await client.sessions.list()):
                    assert process.returncode is None
                process.send_signal(signal.SIGINT)
                assert await process.wait() == 128 + signal.SIGINT
        (session,) = await client.sessions.list()
        assert session["state"] == "idle"


async def test_sessions_are_listed_shown_renamed_forked_sent_to_exported_and_deleted(person: Person) -> None:
    async with person.crib():
        await person.run("chat", "a first word")
        (session,) = await person.json("sessions", "list")
        short = str(session["id"])[:8]
        assert (await person.json("sessions", "rename", short, "A talk"))["title"] == "A talk"
        shown = (await person.run("sessions", "show", short)).stdout.decode()
        assert "title:       A talk" in shown
        assert f"toolcrib chat --resume {short}" in shown
        fork = await person.json("sessions", "fork", short, "--title", "Another talk")
        said = await person.run("sessions", "send", str(fork["id"]), "a second word")
        assert (said.returncode, said.stdout) == (0, b"Fine, you said that.\n")
        sent = await person.json("sessions", "send", short, "a third word", "--no-wait")
        assert sent["queued"] is False
        assert (await person.json("sessions", "interrupt", str(fork["id"]))) == {"interrupted": False}
        exported = (await person.run("sessions", "export", str(fork["id"]))).stdout
        assert [each["content"] for each in events(exported) if each["kind"] == "user_message"] == [
            "a first word",
            "a second word",
        ]
        written = await person.run("sessions", "export", short, "--format", "markdown", "--output", "talk.md")
        assert (written.returncode, written.stdout) == (0, b"")
        assert "a first word" in (person.folder / "talk.md").read_text(encoding="utf-8")
        assert (await person.run("sessions", "delete", short)).returncode == 2
        assert (await person.run("sessions", "delete", short, "--yes")).returncode == 0
        assert [each["id"] for each in await person.json("sessions", "list")] == [fork["id"]]
        assert (await person.run("sessions", "show", short)).returncode == 3
        table = (await person.run("sessions", "list", "--cwd", ".")).stdout.decode()
        assert "Another talk" in table


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["sessions", "list", "--state", "asleep"], b"'asleep' is not a state"),
        (["sessions", "export", "x", "--format", "pdf"], b"'pdf' is not a format"),
        (["chat", "--agent", "a", "--resume", "b"], b"either --agent or --resume"),
    ],
)
async def test_what_cannot_be_meant_is_refused_before_anything_starts(
    person: Person, line: list[str], said: bytes
) -> None:
    done = await person.run(*line)
    assert (done.returncode, said in done.stderr) == (2, True)


async def test_nothing_is_sent_where_no_crib_would_be_there_to_answer(person: Person) -> None:
    done = await person.run("sessions", "send", "x", "hello", "--no-wait")
    assert (done.returncode, b"No crib is running" in done.stderr) == (2, True)
