"""The process of Claude Code: what it gets, how it ends, and how a conversation goes on after it."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import anyio
import anyio.to_thread
import psutil
import pytest

from integration.agents.sessions.claude import host
from toolcrib.agents.sessions.claude.runtime import ClaudeRuntime
from toolcrib.agents.sessions.runtime import Conversation, Offered, Permit
from toolcrib.base.settings import Environment
from toolcrib.model.errors import Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.model.sessions import SessionLimits, TurnEnd
from toolcrib.model.tools import CallResult
from toolcrib.testing.processes import descendants
from toolcrib.testing.recording_host import RecordingHost
from toolcrib.testing.runner_rig import ECHO, HEARD, RunnerRig, do, prompt, say

pytestmark = pytest.mark.anyio


async def never(offered: Offered, arguments: JsonObject) -> CallResult:
    await anyio.sleep_forever()
    return CallResult()


def kill(number: signal.Signals) -> None:
    """Send a signal to the one process of Claude Code; the tests have others of their own."""
    (pid,) = (pid for pid, name in descendants().items() if name.startswith("claude"))
    os.kill(pid, number)


async def has_connected(conversation: Conversation) -> None:
    """Wait until Claude Code knows the tools: the SDK fails for a process that dies while its request is answered."""
    with anyio.fail_after(30):
        while True:
            servers = await conversation.servers()
            if servers and all(server.tools for server in servers):
                return
            await anyio.sleep(0.05)


async def killed(conversation: Conversation, recorder: RecordingHost, what: str) -> TurnEnd:
    """The end of a turn whose process is killed as soon as this came to the recorder."""
    ends: list[TurnEnd] = []

    async def talk() -> None:
        ends.append(await conversation.turn(prompt("s")))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(talk)
        await recorder.until(what)
        kill(signal.SIGKILL)
    return ends[0]


@pytest.mark.parametrize(
    ("what", "step"),
    [
        ("call", do({"tool": "mcp__lab__echo", "input": {"text": "a"}})),
        ("text_delta", say("word " * 1000, chunk=5, chunk_delay_ms=20)),
        ("tool_call_delta", do({"tool": "mcp__lab__echo", "input": {"text": "a" * 9000}}) | {"chunk_delay_ms": 20}),
    ],
)
async def test_a_process_that_is_killed_ends_the_turn_and_the_conversation_goes_on(
    rig: RunnerRig, what: str, step: JsonObject
) -> None:
    recorder = RecordingHost(never)
    rig.script("before", [say("one")])
    rig.script("s", [step])
    rig.script("after", [say("I remember.")])
    async with rig.open(recorder) as conversation:
        await conversation.turn(prompt("before"))
        end = await killed(conversation, recorder, what)
        assert (end.reason, end.is_alive) == ("failed", False)
        assert end.failure is not None
        assert end.failure.code == "runner.died"
        assert "SIGKILL" in end.failure.message
        assert len(recorder.of("call_cancelled")) == len(recorder.of("call")), "nothing goes on that nobody waits for"
        assert (
            len(recorder.of("tool_call_start")) == len(recorder.of("tool_call_end")) == len(recorder.of("tool_result"))
        )
        again = await conversation.turn("And now?")
        assert (again.reason, again.is_alive) == ("failed", False)
    async with rig.open(RecordingHost(), resume=end.runtime) as conversation:
        resumed = await conversation.turn(prompt("after"))
    assert (resumed.reason, resumed.runtime) == ("completed", end.runtime)


async def test_a_copy_that_is_killed_once_it_has_spoken_keeps_its_history(rig: RunnerRig) -> None:
    rig.script("s", [say("one"), do(rig.use(ECHO, text="a")), say("three")])
    async with rig.open(RecordingHost()) as conversation:
        first = await conversation.turn(prompt("s"))
    recorder = RecordingHost(never)
    async with rig.open(recorder, resume=first.runtime, fork=True) as conversation:
        ends: list[TurnEnd] = []

        async def talk() -> None:
            ends.append(await conversation.turn("And now?"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk)
            await recorder.until("call")
            kill(signal.SIGKILL)
    copy = ends[0].runtime
    assert copy != first.runtime
    after = RecordingHost()  # a copy that was not written yet when it was killed is made again
    async with rig.open(after, resume=copy or first.runtime, fork=copy is None) as conversation:
        assert (await conversation.turn("And now?")).reason == "completed"
    assert after.texts() == ["three"], "what was said before lies behind it"


async def test_a_conversation_that_dies_before_it_is_kept_begins_anew_under_its_id(rig: RunnerRig) -> None:
    rig.script("s", [say("I am here.")])
    async with rig.open(RecordingHost()) as conversation:
        runtime = conversation.runtime
        assert runtime is not None
        await has_connected(conversation)
        kill(signal.SIGKILL)
        end = await conversation.turn(prompt("s"))
        assert (end.reason, end.runtime, end.is_alive) == ("failed", runtime, False)
    recorder = RecordingHost()
    async with rig.open(recorder, resume=runtime) as conversation:
        assert conversation.runtime == runtime
        assert (await conversation.turn(prompt("s"))).runtime == runtime
    assert recorder.texts() == ["I am here."]


async def test_a_copy_has_its_id_once_there_is_something_to_resume(rig: RunnerRig) -> None:
    rig.script("s", [say("one"), say("two")])
    async with rig.open(RecordingHost()) as conversation:
        first = await conversation.turn(prompt("s"))
    async with rig.open(RecordingHost(), resume=first.runtime, fork=True) as conversation:
        assert conversation.runtime is None, "were it lost now, it would have to be copied again"
        end = await conversation.turn("And now?")
        assert conversation.runtime == end.runtime != first.runtime


async def test_what_a_resumed_conversation_has_cost_is_not_counted_again(rig: RunnerRig) -> None:
    rig.script("s", [say("one")])
    async with rig.open(RecordingHost()) as conversation:
        first = await conversation.turn(prompt("s"))
        second = await conversation.turn(prompt("s"))
    async with rig.open(RecordingHost(), resume=first.runtime) as conversation:
        third = await conversation.turn(prompt("s"))
    assert first.spent == second.spent == third.spent
    assert first.spent.cost_usd > 0


async def test_a_budget_ends_the_turn_and_leaves_no_call_open(rig: RunnerRig) -> None:
    recorder = RecordingHost()
    end = await rig.answer(recorder, do(rig.use(ECHO, text="a")), limits=SessionLimits(cost_usd=0.0002))
    assert end.reason == "limit"
    assert end.failure is not None
    assert end.failure.code == "runner.limit"
    assert len(recorder.of("tool_call_start")) == len(recorder.of("tool_result"))


@pytest.mark.parametrize("change", [{"cwd": "/nowhere/at/all"}, {"resume": "../../etc/passwd"}])
async def test_a_start_that_fails_says_why(rig: RunnerRig, change: dict[str, str]) -> None:
    with pytest.raises(Unavailable) as caught:
        async with rig.open(RecordingHost(), **change):
            pass
    assert caught.value.code == "runner.start"
    assert caught.value.hint
    assert "did not start. " in caught.value.message


async def test_without_the_program_it_says_how_to_get_it(rig: RunnerRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.agents.sessions.claude.program.find_spec", lambda name: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    other = replace(rig, runner=ClaudeRuntime(Environment({"PATH": "/nowhere"}), Path("unused")))
    with pytest.raises(Unavailable) as caught:
        async with other.open(RecordingHost()):
            pass
    assert caught.value.code == "runner.missing"


def test_without_the_sdk_the_rest_can_be_imported_and_says_what_is_missing() -> None:
    code = """
import sys
sys.modules["claude_agent_sdk"] = None
from toolcrib.model.errors import Unavailable
from toolcrib.agents.sessions.runtimes import load_claude
try:
    load_claude()
except Unavailable as error:
    print(error.code)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.returncode) == ("runner.missing", 0), done.stderr


async def test_claude_code_and_its_commands_get_nothing_of_the_crib(
    rig: RunnerRig, claude_environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {
        "TOOLCRIB_HOME": "/secret/home",
        "DATABASE_URL": "secret-database",
        "AWS_SECRET_ACCESS_KEY": "secret-cloud",
    }
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", "secret-other-session")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "of: the process, not of the crib")
    environment = Environment({**claude_environment, **secrets, "LC_CTYPE": "C.UTF-8"})
    other = replace(rig, runner=ClaudeRuntime(environment, tmp_path / "other"))
    out = tmp_path / "variables"
    command: JsonObject = {"command": f"env > {out}", "description": "d"}
    end = await other.answer(
        RecordingHost(permits={"Bash": Permit(True, command)}),
        do({"tool": "Bash", "input": command}),
        say("done"),
        own_tools=("Bash",),
    )
    assert end.reason == "completed"
    text = out.read_text(encoding="utf-8")
    assert "secret" not in text
    assert "TOOLCRIB" not in text
    assert "of the crib" not in text
    assert f"HOME={claude_environment['HOME']}\n" in text
    assert "LC_CTYPE=C.UTF-8\n" in text


async def test_claude_code_ends_with_a_host_that_is_killed(
    rig: RunnerRig, claude_environment: Environment, tmp_path: Path, project: Path
) -> None:
    rig.script("s", [do(rig.use(ECHO, text="a"))])
    variables = tmp_path / "variables.json"
    variables.write_text(json.dumps(dict(claude_environment)), encoding="utf-8")
    command = [sys.executable, host.__file__, str(variables), str(tmp_path / "run"), str(project), prompt("s")]
    with anyio.fail_after(60):
        async with await anyio.open_process(command, stderr=None) as process:
            assert process.stdout is not None
            pids: list[int] = json.loads(await process.stdout.receive())
            assert pids
            started = [psutil.Process(pid) for pid in pids]
            process.kill()
        _, alive = await anyio.to_thread.run_sync(psutil.wait_procs, started, 20)
    assert alive == []


async def test_a_conversation_of_an_id_that_nobody_knows_begins_under_it(rig: RunnerRig) -> None:
    id = str(uuid4())
    rig.script("s", [say("one")])
    async with rig.open(RecordingHost(), resume=id) as conversation:
        assert (await conversation.turn(prompt("s"))).runtime == id


async def test_tools_that_vanished_are_no_longer_there_after_a_resume(rig: RunnerRig) -> None:
    rig.script("s", [do(rig.use(ECHO, text="a")), HEARD])
    async with rig.open(RecordingHost()) as conversation:
        first = await conversation.turn(prompt("s"))
    recorder = RecordingHost()
    async with rig.open(recorder, resume=first.runtime, tools=()) as conversation:
        assert (await conversation.turn(prompt("s"))).reason == "completed"
    assert recorder.of("call") == []
    assert "No such tool" in recorder.texts()[0]
