"""Calls of Claude Code: announced before they run, cancelled with the turn, and without secret text for the model."""

from typing import Any

import anyio
import mcp.types as types
import pytest
from claude_agent_sdk import AssistantMessage, PermissionResultAllow, PermissionResultDeny, ToolUseBlock
from claude_agent_sdk.types import PreToolUseHookInput, ToolPermissionContext

from toolcrib.agents.sessions.claude import calls as module
from toolcrib.agents.sessions.claude.calls import ClaudeCalls
from toolcrib.agents.sessions.claude.hooks import ClaudeHooks
from toolcrib.agents.sessions.claude.mapping import ClaudeMapper
from toolcrib.agents.sessions.claude.servers import build_servers
from toolcrib.agents.sessions.runtime import Offered, Permit
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import CallResult
from toolcrib.testing.recording_host import RecordingHost
from toolcrib.testing.runner_rig import ECHO, claude_name

pytestmark = pytest.mark.anyio


async def hang(offered: Offered, arguments: JsonObject) -> CallResult:
    await anyio.sleep_forever()
    return CallResult()


async def call_tool(host: RecordingHost, calls: ClaudeCalls, meta: JsonObject | None) -> types.CallToolResult:
    """Call the tool as Claude Code does."""
    server = build_servers((ECHO,), host, calls)["lab"]["instance"]
    handler: Any = server.get_request_handler("tools/call")
    params = types.CallToolRequestParams.model_validate({"name": "echo", "arguments": {"text": "a"}, "_meta": meta})
    return await handler.handler(None, params)


def hook_input(tool: str, tool_call: str) -> PreToolUseHookInput:
    """Return the input of the hook before a tool runs."""
    return {
        "hook_event_name": "PreToolUse", "session_id": "s", "transcript_path": "", "cwd": "/", "tool_name": tool,
        "tool_input": {"n": 1}, "tool_use_id": tool_call,
    }  # fmt: skip


async def test_call_waits_for_its_announcement() -> None:
    mapper = ClaudeMapper({claude_name(ECHO): ECHO})
    host = RecordingHost()
    calls = ClaudeCalls(host, mapper)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call_tool, host, calls, {"claudecode/toolUseId": "t1"})
            await anyio.wait_all_tasks_blocked()
            assert host.entries == []
            for emission in mapper.take(AssistantMessage([ToolUseBlock("t1", claude_name(ECHO), {})], "claude")):
                host.emit(*emission)
            calls.take()
    assert host.order("t1") == ["tool_call_start", "tool_call_end", "call", "call_done"]


@pytest.mark.parametrize("meta", [None, {}, {"claudecode/toolUseId": "t1"}])
async def test_unannounced_call_is_announced_before_it_runs(
    meta: JsonObject | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.01)
    mapper = ClaudeMapper({claude_name(ECHO): ECHO})
    host = RecordingHost()
    with anyio.fail_after(5):
        await call_tool(host, ClaudeCalls(host, mapper), meta)
    assert [entry.what for entry in host.entries] == ["tool_call_start", "tool_call_end", "call", "call_done"]
    assert len({entry.tool_call for entry in host.entries}) == 1
    assert [kind for kind, _, _ in mapper.finish("Over.")] == ["tool_result"]


async def test_end_of_a_turn_cancels_running_calls() -> None:
    host = RecordingHost(hang)
    calls = ClaudeCalls(host)
    results: list[types.CallToolResult] = []

    async def call() -> None:
        results.append(await call_tool(host, calls, None))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await host.until("call")
            await calls.settle()
            assert len(host.of("call_cancelled")) == 1
    assert results[0].is_error


async def test_only_permitted_calls_are_confirmed() -> None:
    host = RecordingHost(permits={"Write": Permit(True, {"n": 2})})
    hooks = ClaudeHooks({claude_name(ECHO)}, host, ClaudeCalls(host), "/w")
    (matcher,) = hooks.matchers()["PreToolUse"]
    before = matcher.hooks[0]
    assert matcher.on_failure == "block"
    answers: dict[str, Any] = {}
    for name, id in (("Write", "t1"), ("Bash", "t2"), (claude_name(ECHO), "t3"), ("mcp__else__where", "t4")):
        answers[id] = await before(hook_input(name, id), id, {"signal": None})
    decisions = {id: answer["hookSpecificOutput"]["permissionDecision"] for id, answer in answers.items()}
    assert decisions == {"t1": "allow", "t2": "deny", "t3": "allow", "t4": "deny"}
    assert answers["t1"]["hookSpecificOutput"]["updatedInput"] == {"n": 2}
    confirmed = [await hooks.confirm("x", {"n": 1}, ToolPermissionContext(tool_use_id=f"t{n}")) for n in range(5)]
    assert [type(each) for each in confirmed] == [
        PermissionResultDeny, PermissionResultAllow, PermissionResultDeny, PermissionResultAllow, PermissionResultDeny,
    ]  # fmt: skip
    assert confirmed[1] == PermissionResultAllow(updated_input={"n": 2})
    assert [entry.data["tool"] for entry in host.of("permit")] == ["Write", "Bash"]
    await hooks.settle()
    assert [(entry.tool_call, entry.data["isError"]) for entry in host.of("ended")] == [("t1", True)]


async def test_failing_permission_check_denies_and_hides_the_error() -> None:
    class Broken(RecordingHost):
        async def permit(self, tool: str, arguments: JsonObject, tool_call: str) -> Permit:
            raise RuntimeError("swordfish")

    host = Broken()
    before = ClaudeHooks((), host, ClaudeCalls(host), "/w").matchers()["PreToolUse"][0].hooks[0]
    answer: Any = await before(hook_input("Bash", "t1"), "t1", {"signal": None})
    assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert "swordfish" not in str(answer)
