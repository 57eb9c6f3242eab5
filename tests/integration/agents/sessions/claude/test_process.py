"""The process of Claude Code: its environment, its end, and conversations after it."""

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
    """Send a signal to the process of Claude Code."""
    (pid,) = (pid for pid, name in descendants().items() if name.startswith("claude"))
    os.kill(pid, number)


async def wait_until_connected(conversation: Conversation) -> None:
    """Wait until Claude Code lists the tools; the SDK fails for a process that dies during a request."""
    with anyio.fail_after(30):
        while True:
            servers = await conversation.servers()
            if servers and all(server.tools for server in servers):
                return
            await anyio.sleep(0.05)


async def turn_with_kill(conversation: Conversation, recorder: RecordingHost, entry: str) -> TurnEnd:
    """Run a turn, kill its process at this entry of the recorder, and return the end of the turn."""
    ends: list[TurnEnd] = []

    async def run_turn() -> None:
        ends.append(await conversation.turn(prompt("s")))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_turn)
        await recorder.until(entry)
        kill(signal.SIGKILL)
    return ends[0]


@pytest.mark.parametrize(
    ("entry", "step"),
    [
        ("call", do({"tool": "mcp__lab__echo", "input": {"text": "a"}})),
        ("text_delta", say("word " * 1000, chunk=5, chunk_delay_ms=20)),
        ("tool_call_delta", do({"tool": "mcp__lab__echo", "input": {"text": "a" * 9000}}) | {"chunk_delay_ms": 20}),
    ],
)
async def test_killed_process_fails_the_turn_and_the_conversation_resumes(
    rig: RunnerRig, entry: str, step: JsonObject
) -> None:
    recorder = RecordingHost(never)
    rig.script("before", [say("one")])
    rig.script("s", [step])
    rig.script("after", [say("I remember.")])
    async with rig.open(recorder) as conversation:
        await conversation.turn(prompt("before"))
        end = await turn_with_kill(conversation, recorder, entry)
        assert (end.reason, end.is_alive) == ("failed", False)
        assert end.failure is not None
        assert end.failure.code == "runner.died"
        assert "SIGKILL" in end.failure.message
        assert len(recorder.of("call_cancelled")) == len(recorder.of("call")), "a call still runs after the kill"
        assert (
            len(recorder.of("tool_call_start")) == len(recorder.of("tool_call_end")) == len(recorder.of("tool_result"))
        )
        again = await conversation.turn("And now?")
        assert (again.reason, again.is_alive) == ("failed", False)
    async with rig.open(RecordingHost(), resume=end.runtime) as conversation:
        resumed = await conversation.turn(prompt("after"))
    assert (resumed.reason, resumed.runtime) == ("completed", end.runtime)


async def test_fork_killed_during_its_first_turn_keeps_its_history(rig: RunnerRig) -> None:
    rig.script("s", [say("one"), do(rig.use(ECHO, text="a")), say("three")])
    async with rig.open(RecordingHost()) as conversation:
        first = await conversation.turn(prompt("s"))
    recorder = RecordingHost(never)
    async with rig.open(recorder, resume=first.runtime, fork=True) as conversation:
        ends: list[TurnEnd] = []

        async def run_turn() -> None:
            ends.append(await conversation.turn("And now?"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_turn)
            await recorder.until("call")
            kill(signal.SIGKILL)
    copy = ends[0].runtime
    assert copy != first.runtime
    after = RecordingHost()  # a fork that was not stored before the kill is made again
    async with rig.open(after, resume=copy or first.runtime, fork=copy is None) as conversation:
        assert (await conversation.turn("And now?")).reason == "completed"
    assert after.texts() == ["three"], "the fork lost its history"


async def test_conversation_killed_before_it_is_stored_restarts_with_its_id(rig: RunnerRig) -> None:
    rig.script("s", [say("I am here.")])
    async with rig.open(RecordingHost()) as conversation:
        runtime = conversation.runtime
        assert runtime is not None
        await wait_until_connected(conversation)
        kill(signal.SIGKILL)
        end = await conversation.turn(prompt("s"))
        assert (end.reason, end.runtime, end.is_alive) == ("failed", runtime, False)
    recorder = RecordingHost()
    async with rig.open(recorder, resume=runtime) as conversation:
        assert conversation.runtime == runtime
        assert (await conversation.turn(prompt("s"))).runtime == runtime
    assert recorder.texts() == ["I am here."]


async def test_fork_has_an_id_only_after_its_first_turn(rig: RunnerRig) -> None:
    rig.script("s", [say("one"), say("two")])
    async with rig.open(RecordingHost()) as conversation:
        first = await conversation.turn(prompt("s"))
    async with rig.open(RecordingHost(), resume=first.runtime, fork=True) as conversation:
        assert conversation.runtime is None, "a fork without a turn cannot be resumed"
        end = await conversation.turn("And now?")
        assert conversation.runtime == end.runtime != first.runtime


async def test_earlier_cost_of_a_resumed_conversation_is_not_counted_again(rig: RunnerRig) -> None:
    rig.script("s", [say("one")])
    async with rig.open(RecordingHost()) as conversation:
        first = await conversation.turn(prompt("s"))
        second = await conversation.turn(prompt("s"))
    async with rig.open(RecordingHost(), resume=first.runtime) as conversation:
        third = await conversation.turn(prompt("s"))
    assert first.spent == second.spent == third.spent
    assert first.spent.cost_usd > 0


async def test_cost_limit_ends_the_turn_and_leaves_no_call_open(rig: RunnerRig) -> None:
    recorder = RecordingHost()
    end = await rig.answer(recorder, do(rig.use(ECHO, text="a")), limits=SessionLimits(cost_usd=0.0002))
    assert end.reason == "limit"
    assert end.failure is not None
    assert end.failure.code == "runner.limit"
    assert len(recorder.of("tool_call_start")) == len(recorder.of("tool_result"))


@pytest.mark.parametrize("change", [{"cwd": "/nowhere/at/all"}, {"resume": "../../etc/passwd"}])
async def test_failed_start_is_an_error_with_its_cause(rig: RunnerRig, change: dict[str, str]) -> None:
    with pytest.raises(Unavailable) as caught:
        async with rig.open(RecordingHost(), **change):
            pass
    assert caught.value.code == "runner.start"
    assert caught.value.hint
    assert "did not start. " in caught.value.message


async def test_missing_program_is_an_error(rig: RunnerRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.agents.sessions.claude.program.find_spec", lambda name: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    other = replace(rig, runner=ClaudeRuntime(Environment({"PATH": "/nowhere"}), Path("unused")))
    with pytest.raises(Unavailable) as caught:
        async with other.open(RecordingHost()):
            pass
    assert caught.value.code == "runner.missing"


def test_missing_sdk_is_an_error_only_when_the_runtime_is_loaded() -> None:
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


async def test_claude_code_and_its_commands_get_no_variables_of_the_crib(
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


async def test_claude_code_ends_when_its_host_is_killed(
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


async def test_resuming_an_unknown_id_starts_a_conversation_with_it(rig: RunnerRig) -> None:
    id = str(uuid4())
    rig.script("s", [say("one")])
    async with rig.open(RecordingHost(), resume=id) as conversation:
        assert (await conversation.turn(prompt("s"))).runtime == id


async def test_removed_tools_are_unavailable_after_a_resume(rig: RunnerRig) -> None:
    rig.script("s", [do(rig.use(ECHO, text="a")), HEARD])
    async with rig.open(RecordingHost()) as conversation:
        first = await conversation.turn(prompt("s"))
    recorder = RecordingHost()
    async with rig.open(recorder, resume=first.runtime, tools=()) as conversation:
        assert (await conversation.turn(prompt("s"))).reason == "completed"
    assert recorder.of("call") == []
    assert "No such tool" in recorder.texts()[0]
