"""What a conversation begins with: its prompt, its tools, and nothing that lies about in the project."""

import json
from pathlib import Path

import anyio
import pytest
from claude_agent_sdk import ClaudeSDKClient, ResultMessage

from toolcrib.agents.sessions.claude.runtime import ClaudeRuntime
from toolcrib.agents.sessions.runtime import Brief, Offered, Permit
from toolcrib.model.tools import Marks, Tool, ToolRef
from toolcrib.testing.recording_host import RecordingHost
from toolcrib.testing.runner_rig import ECHO, HEARD, SCHEMA, RunnerRig, do, prompt, say
from toolcrib.testing.scripted_model.server import ScriptedModel

pytestmark = pytest.mark.anyio


def many(count: int) -> tuple[Offered, ...]:
    """So many tools, one of which is always wanted."""
    marked = {0: Marks(always_load=True)}
    return tuple(
        Offered(
            f"shelf{number % 10}",
            f"tool{number}",
            Tool(ToolRef(f"shelf{number % 10}", f"tool{number}"), "Do it.", SCHEMA, marks=marked.get(number, Marks())),
        )
        for number in range(count)
    )


async def test_of_five_hundred_tools_the_model_is_shown_few_and_can_look_for_the_others(
    rig: RunnerRig, scripted_model: ScriptedModel
) -> None:
    host = RecordingHost(permits={"ToolSearch": Permit(True, {"query": "select:mcp__shelf7__tool7"})})
    end = await rig.answer(
        host,
        do({"tool": "ToolSearch", "input": {"query": "select:mcp__shelf7__tool7"}}),
        do({"tool": "mcp__shelf7__tool7", "input": {"text": "a"}}),
        HEARD,
        tools=many(500),
        own_tools=("ToolSearch",),
    )
    assert end.reason == "completed"
    first = scripted_model.requests[0]
    loaded = [name for name in first.tools if name not in first.deferred]
    assert sorted(loaded) == ["ToolSearch", "mcp__shelf0__tool0"]
    assert [entry.data["tool"] for entry in host.of("call")] == ["tool7"]
    assert "pong" in host.texts()[0]
    found = {entry.tool_call: entry.data["content"] for entry in host.of("tool_result")}
    assert "mcp__shelf7__tool7" in str(found)


async def test_few_tools_are_all_shown_at_once(rig: RunnerRig, scripted_model: ScriptedModel) -> None:
    await rig.answer(RecordingHost(), say("done"), tools=many(20), own_tools=("ToolSearch",))
    request = scripted_model.requests[0]
    assert len(set(request.tools) - set(request.deferred) - {"ToolSearch"}) == 20


async def test_claude_code_has_only_the_own_tools_it_is_given(rig: RunnerRig, scripted_model: ScriptedModel) -> None:
    await rig.answer(RecordingHost(), say("done"), own_tools=("Read", "Task"))
    assert set(scripted_model.requests[0].tools) == {"Agent", "Read", "mcp__lab__echo", "mcp__shed__other"}
    await rig.answer(RecordingHost(), say("done"), own_tools=())
    assert set(scripted_model.requests[-1].tools) == {"mcp__lab__echo", "mcp__shed__other"}


@pytest.mark.parametrize("words", ["You are a gardener.", "You are a gardener. " + "Water the plants. " * 20_000])
async def test_the_prompt_is_added_however_long_and_counts_anew_when_resumed(
    rig: RunnerRig, scripted_model: ScriptedModel, words: str
) -> None:
    rig.script("s", [say("one")])
    async with rig.open(RecordingHost(), prompt=words) as conversation:
        first = await conversation.turn(prompt("s"))
    assert words in _system(scripted_model)
    async with rig.open(RecordingHost(), prompt="You are a baker.", resume=first.runtime) as conversation:
        await conversation.turn(prompt("s"))
    assert "You are a baker." in _system(scripted_model)
    assert "gardener" not in _system(scripted_model)


def _system(scripted_model: ScriptedModel) -> str:
    return "\n".join(block["text"] for block in scripted_model.bodies[-1]["system"])


async def test_what_is_sent_is_text_and_neither_reads_files_nor_runs_commands(
    rig: RunnerRig, scripted_model: ScriptedModel, project: Path
) -> None:
    (project / "diary.txt").write_text("dear diary", encoding="utf-8")
    rig.script("s", [say("one")])
    async with rig.open(RecordingHost(), own_tools=("Read",)) as conversation:
        await conversation.turn(f"@diary.txt {prompt('s')}")
        assert (await conversation.turn(f"/compact {prompt('s')}")).reason == "completed"
    assert "dear diary" not in str(scripted_model.bodies)
    assert "/compact " in str(scripted_model.bodies[-1]["messages"][-1])


async def test_settings_hooks_and_servers_of_the_project_count_for_nothing(
    rig: RunnerRig, scripted_model: ScriptedModel, project: Path
) -> None:
    trace = project / "trace"
    hook = {"hooks": [{"type": "command", "command": f"touch {trace}"}]}
    settings = {
        "permissions": {"allow": ["Write"]},
        "hooks": {"PreToolUse": [hook], "UserPromptSubmit": [hook], "SessionStart": [hook]},
    }
    (project / ".claude").mkdir()
    (project / ".claude" / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    (project / "CLAUDE.md").write_text("Always say please.", encoding="utf-8")
    server = {"mcpServers": {"evil": {"command": "touch", "args": [str(trace)]}}}
    (project / ".mcp.json").write_text(json.dumps(server), encoding="utf-8")
    own = rig.own_tool
    assert own is not None
    host = RecordingHost()
    await rig.answer(host, do({"tool": "Write", "input": own.arguments}), say("done"))
    assert not trace.exists()
    assert not own.has_run(own.arguments)
    assert len(host.of("permit")) == 1
    assert "Always say please." not in str(scripted_model.bodies)


async def test_options_for_a_loop_of_ones_own_have_the_tools_and_the_decisions(
    rig: RunnerRig, runner: ClaudeRuntime, project: Path
) -> None:
    own = rig.own_tool
    assert own is not None
    rig.script("s", [do(rig.use(ECHO, text="a"), {"tool": "Write", "input": own.arguments}), HEARD])
    host = RecordingHost()
    brief = Brief("s", str(project), "default", "", (ECHO,), ("Write",), model=rig.model)
    results: list[ResultMessage] = []
    with anyio.fail_after(rig.timeout):
        async with ClaudeSDKClient(runner.options(brief, host)) as client:
            await client.query(prompt("s"))
            results += [message async for message in client.receive_response() if isinstance(message, ResultMessage)]
    assert [entry.what for entry in host.entries] == ["call", "call_done", "permit"]
    assert not own.has_run(own.arguments)
    assert "Write is not permitted here." in str(results[0].result)
