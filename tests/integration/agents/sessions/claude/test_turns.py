"""Turns of Claude Code, as its host records them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import anyio
import pytest

from long_tests import takes_long
from toolcrib.agents.sessions.runtime import Offered, Permit
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import CallResult
from toolcrib.testing.recording_host import DURATION_MS, RecordedEntry, RecordingHost
from toolcrib.testing.runner_rig import ECHO, HEARD, PIXEL, RunnerRig, do, prompt, say
from toolcrib.testing.scripted_model.server import ScriptedModel

pytestmark = [pytest.mark.anyio, takes_long]


def kinds(host: RecordingHost) -> list[str]:
    """Return the kinds of the recorded entries; count consecutive deltas once."""
    kinds_in_order = [entry.what for entry in host.entries]
    return [kind for index, kind in enumerate(kinds_in_order) if not index or kinds_in_order[index - 1] != kind]


def last_tool_result(scripted_model: ScriptedModel) -> JsonObject:
    """Return the last tool result that the model received."""
    results = [
        block
        for message in scripted_model.bodies[-1]["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    return results[-1]


async def test_events_of_a_turn_have_the_documented_order(rig: RunnerRig, scripted_model: ScriptedModel) -> None:
    host = RecordingHost()
    calls = do({"thinking": "Hm."}, {"text": "Looking."}, rig.use(ECHO, text="a"))
    end = await rig.answer(host, calls, say("Done."))
    assert kinds(host) == [
        "thinking_delta", "text_delta", "text_message", "tool_call_start", "tool_call_delta", "tool_call_end", "call",
        "call_done", "tool_result", "text_delta", "text_message",
    ]  # fmt: skip
    (start,), (end_of_call,), (result,) = host.of("tool_call_start"), host.of("tool_call_end"), host.of("tool_result")
    assert start.data == {
        "toolCallId": start.tool_call, "toolName": "mcp__lab__echo", "server": "lab", "tool": "echo",
    }  # fmt: skip
    assert end_of_call.data["arguments"] == {"text": "a"}
    assert result.data["durationMs"] == DURATION_MS
    messages = [entry.data["messageId"] for entry in host.of("thinking_delta", "text_message")]
    assert len(set(messages)) == 3, "each block of a message has its own id"
    assert (end.spent.input_tokens, end.spent.output_tokens) == (20, 10)
    assert end.spent.cost_usd > 0
    assert scripted_model.background == [], "Claude Code sent background requests"


async def test_calls_of_a_sub_agent_are_permitted_and_have_a_parent(rig: RunnerRig, project: Path) -> None:
    command: JsonObject = {"tool": "Bash", "input": {"command": "echo from below", "description": "d"}}
    task: JsonObject = {"description": "d", "prompt": prompt("sub"), "subagent_type": "general-purpose"}
    rig.script("sub", [do({"text": "I am below."}, rig.use(ECHO, text="b"), command), say("Below is done.")])
    host = RecordingHost(permits={tool: Permit(True, arguments) for tool, arguments in _permitted(task, command)})
    end = await rig.answer(
        host, do({"tool": "Agent", "input": task}), say("Above is done."), own_tools=("Task", "Bash", "Write")
    )
    assert end.reason == "completed"
    top, call, bash = host.of("tool_call_start")
    assert (top.data["toolName"], top.data["server"], top.data["tool"]) == ("Agent", "claude_code", "Task")
    assert (top.parent, call.parent, bash.parent) == (None, top.tool_call, top.tool_call)
    assert [(entry.data["text"], entry.parent) for entry in host.of("text_message")] == [
        ("I am below.", top.tool_call), ("Below is done.", top.tool_call), ("Above is done.", None),
    ]  # fmt: skip
    assert [entry.data["tool"] for entry in host.of("permit")] == ["Task", "Bash"]
    assert call.tool_call is not None
    assert host.order(call.tool_call) == ["tool_call_start", "tool_call_end", "call", "call_done", "tool_result"]
    results = {entry.tool_call: entry for entry in host.of("tool_result")}
    assert results[bash.tool_call].data["content"] == [{"type": "text", "text": "from below"}]
    assert results[bash.tool_call].parent == top.tool_call
    assert end.spent.output_tokens == 20, "the usage of a sub-agent counts"


def _permitted(task: JsonObject, command: JsonObject) -> list[tuple[str, JsonObject]]:
    return [("Task", task), ("Bash", command["input"])]


async def test_exception_of_a_tool_is_an_error_without_its_message(
    rig: RunnerRig, scripted_model: ScriptedModel
) -> None:
    async def breaks(offered: Offered, arguments: JsonObject) -> CallResult:
        raise RuntimeError("the password is swordfish")

    host = RecordingHost(breaks)
    end = await rig.answer(host, do(rig.use(ECHO, text="a")), HEARD)
    assert end.reason == "completed"
    (text,) = host.texts()
    assert "See its log" in text
    assert "swordfish" not in str(scripted_model.bodies)
    (result,) = host.of("tool_result")
    assert result.data["isError"] is True
    assert "swordfish" not in str(host.entries)


async def test_result_of_five_megabytes_is_passed_on_whole(rig: RunnerRig) -> None:
    large = "0123456789 abcdef\n" * (5 * 1_048_576 // 18)

    async def much(offered: Offered, arguments: JsonObject) -> CallResult:
        return CallResult.text(large)

    host = RecordingHost(much)
    end = await rig.answer(host, do(rig.use(ECHO, text="a")), say("Done."))
    assert end.reason == "completed"
    (result,) = host.of("tool_result")
    assert result.data["content"] == [{"type": "text", "text": large}]


async def test_image_with_structured_content_reaches_the_model(rig: RunnerRig, scripted_model: ScriptedModel) -> None:
    image: JsonObject = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    sound: JsonObject = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}
    shape: JsonObject = {"type": "hologram", "size": 3}

    async def parts(offered: Offered, arguments: JsonObject) -> CallResult:
        return CallResult((image, sound, shape), structured_content={"n": 1}, has_structured=True)

    host = RecordingHost(parts)
    end = await rig.answer(host, do(rig.use(ECHO, text="a")), say("Done."))
    assert end.reason == "completed"
    (result,) = host.of("tool_result")
    assert result.data["content"] == [image, sound, shape]
    assert result.data["structuredContent"] == {"n": 1}
    content = last_tool_result(scripted_model)["content"]
    assert any(block["type"] == "image" for block in content)
    assert "audio/wav" in str(content)
    assert "hologram" in str(content)


async def test_structured_content_reaches_the_model(rig: RunnerRig, scripted_model: ScriptedModel) -> None:
    async def structured(offered: Offered, arguments: JsonObject) -> CallResult:
        return CallResult(({"type": "text", "text": "in words"},), structured_content={"n": 41}, has_structured=True)

    host = RecordingHost(structured)
    await rig.answer(host, do(rig.use(ECHO, text="a")), say("Done."))
    assert "41" in str(last_tool_result(scripted_model)["content"])


async def test_interrupt_ends_a_hung_call_and_the_conversation_continues(rig: RunnerRig) -> None:
    command: JsonObject = {"command": "sleep 600", "description": "d"}
    rig.script("s", [do({"tool": "Bash", "input": command})])
    rig.script("next", [say("I am here.")])
    host = RecordingHost(permits={"Bash": Permit(True, command)})
    async with rig.open(host, own_tools=("Bash",)) as conversation, anyio.create_task_group() as tasks:

        async def interrupt() -> None:
            await host.until("permit")
            await conversation.interrupt()

        tasks.start_soon(interrupt)
        end = await conversation.turn(prompt("s"))
        assert (end.reason, end.failure, end.is_alive) == ("interrupted", None, True)
        (start,) = host.of("tool_call_start")
        assert start.tool_call is not None
        assert set(host.order(start.tool_call)[-2:]) == {"ended", "tool_result"}
        assert len(host.of("ended")) == len(host.of("tool_result")) == 1
        assert (await conversation.turn(prompt("next"))).reason == "completed"


async def test_failed_command_ends_once_with_an_error(rig: RunnerRig) -> None:
    command: JsonObject = {"command": "echo oh no; exit 3", "description": "d"}
    host = RecordingHost(permits={"Bash": Permit(True, command)})
    await rig.answer(host, do({"tool": "Bash", "input": command}), say("Done."), own_tools=("Bash",))
    assert [entry.data["isError"] for entry in host.of("ended")] == [True]
    (result,) = host.of("tool_result")
    assert result.data["isError"] is True
    assert "oh no" in result.data["content"][0]["text"]
    assert result.data["durationMs"] > 0


class Undecided(RecordingHost):
    """A host that never answers permits and questions."""

    async def permit(self, tool: str, arguments: JsonObject, tool_call: str) -> Permit:
        await super().permit(tool, arguments, tool_call)
        return await self._wait_forever("permit_cancelled", tool_call)

    async def ask(self, questions: Sequence[JsonObject], tool_call: str) -> Mapping[str, str] | None:
        await super().ask(questions, tool_call)
        await self._wait_forever("ask_cancelled", tool_call)

    async def _wait_forever(self, kind: str, tool_call: str) -> Permit:
        try:
            await anyio.sleep_forever()
        finally:
            self.entries.append(RecordedEntry(kind, tool_call, {}))
        raise AssertionError


@pytest.mark.parametrize("kind", ["permit", "ask"])
async def test_interrupt_withdraws_pending_permits_and_questions(rig: RunnerRig, kind: str) -> None:
    assert rig.own_tool is not None
    assert rig.question is not None
    tool, arguments = {"permit": ("Write", rig.own_tool.arguments), "ask": rig.question}[kind]
    rig.script("s", [do({"tool": tool, "input": arguments})])
    host = Undecided()
    async with rig.open(host) as conversation, anyio.create_task_group() as tasks:

        async def interrupt() -> None:
            await host.until(kind)
            await conversation.interrupt()

        tasks.start_soon(interrupt)
        end = await conversation.turn(prompt("s"))
        assert (end.reason, end.is_alive) == ("interrupted", True)
        assert len(host.of(f"{kind}_cancelled")) == 1
        assert len(host.of("tool_result")) == 1


async def test_interrupt_right_after_the_prompt_ends_the_turn(rig: RunnerRig) -> None:
    rig.script("s", [say("word " * 1000, chunk=5, chunk_delay_ms=20)])
    async with rig.open(RecordingHost()) as conversation, anyio.create_task_group() as tasks:
        tasks.start_soon(conversation.interrupt)
        end = await conversation.turn(prompt("s"))
        assert end.reason == "interrupted"


async def test_interrupted_text_and_call_have_end_events(rig: RunnerRig) -> None:
    rig.script("s", [do({"text": "word " * 50}, rig.use(ECHO, text="x" * 2000)) | {"chunk": 20, "chunk_delay_ms": 20}])
    host = RecordingHost()
    async with rig.open(host) as conversation, anyio.create_task_group() as tasks:

        async def interrupt() -> None:
            await host.until("tool_call_delta")
            await conversation.interrupt()

        tasks.start_soon(interrupt)
        assert (await conversation.turn(prompt("s"))).reason == "interrupted"
    assert host.of("call") == []
    assert [len(host.of(kind)) for kind in ("tool_call_start", "tool_call_end", "tool_result")] == [1, 1, 1]
    assert host.of("tool_result")[0].data["isError"] is True
    assert {entry.data["messageId"] for entry in host.of("text_delta")} == {
        entry.data["messageId"] for entry in host.of("text_message")
    }


async def test_plan_mode_runs_only_permitted_calls(rig: RunnerRig, project: Path) -> None:
    own = rig.own_tool
    assert own is not None
    steps = [do({"tool": "Write", "input": own.arguments}, rig.use(ECHO, text="a")), say("Done.")]
    refused = RecordingHost()
    await rig.answer(refused, *steps, mode="plan")
    assert not own.has_run(own.arguments)
    assert len(refused.of("call")) == 1
    permitted = RecordingHost(permits={"Write": Permit(True, own.others)})
    await rig.answer(permitted, *steps, mode="plan")
    assert own.has_run(own.others)
    assert not own.has_run(own.arguments)


async def test_leaving_plan_mode_needs_a_permit(rig: RunnerRig) -> None:
    host = RecordingHost(permits={"ExitPlanMode": Permit(True, {})})
    step = do({"tool": "ExitPlanMode", "input": {"plan": "First this, then that."}})
    end = await rig.answer(host, step, HEARD, mode="plan", own_tools=("ExitPlanMode",))
    assert end.reason == "completed"
    assert [entry.data["tool"] for entry in host.of("permit")] == ["ExitPlanMode"]
    assert "approved" in host.texts()[0]


async def test_unanswered_question_is_refused_with_a_reason(rig: RunnerRig) -> None:
    assert rig.question is not None
    tool, arguments = rig.question
    host = RecordingHost(answers=None)
    await rig.answer(host, do({"tool": tool, "input": arguments}), HEARD)
    assert "No answer arrived in time" in host.texts()[0]


async def test_refusal_has_the_reason_of_the_host(rig: RunnerRig) -> None:
    own = rig.own_tool
    assert own is not None
    host = RecordingHost(permits={"Write": Permit(False, own.arguments, "Not on a Sunday.")})
    await rig.answer(host, do({"tool": "Write", "input": own.arguments}), HEARD)
    (result,) = host.of("tool_result")
    assert result.data["content"] == [{"type": "text", "text": "Not on a Sunday."}]
    assert host.of("ended") == [], "a refused call was recorded as run"
    assert "Not on a Sunday." in host.texts()[0]
