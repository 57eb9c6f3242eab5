"""Options of a conversation: its prompt and tools, and nothing from files in the project."""

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
    """Return this many tools; one is always loaded."""
    marked = {0: Marks(always_load=True)}
    return tuple(
        Offered(
            f"shelf{number % 10}",
            f"tool{number}",
            Tool(ToolRef(f"shelf{number % 10}", f"tool{number}"), "Do it.", SCHEMA, marks=marked.get(number, Marks())),
        )
        for number in range(count)
    )


async def test_many_tools_are_deferred_and_found_by_tool_search(rig: RunnerRig, scripted_model: ScriptedModel) -> None:
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


async def test_few_tools_are_all_loaded(rig: RunnerRig, scripted_model: ScriptedModel) -> None:
    await rig.answer(RecordingHost(), say("done"), tools=many(20), own_tools=("ToolSearch",))
    request = scripted_model.requests[0]
    assert len(set(request.tools) - set(request.deferred) - {"ToolSearch"}) == 20


async def test_claude_code_has_only_the_own_tools_that_are_allowed(
    rig: RunnerRig, scripted_model: ScriptedModel
) -> None:
    await rig.answer(RecordingHost(), say("done"), own_tools=("Read", "Task"))
    assert set(scripted_model.requests[0].tools) == {"Agent", "Read", "mcp__lab__echo", "mcp__shed__other"}
    await rig.answer(RecordingHost(), say("done"), own_tools=())
    assert set(scripted_model.requests[-1].tools) == {"mcp__lab__echo", "mcp__shed__other"}


@pytest.mark.parametrize("words", ["You are a gardener.", "You are a gardener. " + "Water the plants. " * 20_000])
async def test_system_prompt_of_any_length_is_added_and_replaced_on_resume(
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


async def test_message_text_reads_no_files_and_runs_no_commands(
    rig: RunnerRig, scripted_model: ScriptedModel, project: Path
) -> None:
    (project / "diary.txt").write_text("dear diary", encoding="utf-8")
    rig.script("s", [say("one")])
    async with rig.open(RecordingHost(), own_tools=("Read",)) as conversation:
        await conversation.turn(f"@diary.txt {prompt('s')}")
        assert (await conversation.turn(f"/compact {prompt('s')}")).reason == "completed"
    assert "dear diary" not in str(scripted_model.bodies)
    assert "/compact " in str(scripted_model.bodies[-1]["messages"][-1])


async def test_settings_hooks_and_servers_of_the_project_are_ignored(
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


async def test_options_for_a_custom_loop_have_the_tools_and_the_decisions(
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
