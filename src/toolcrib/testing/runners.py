"""Conformance suite for every `Runtime`, to inherit.

    class TestMyRunner(RunnerContract):
        @pytest.fixture
        def rig(self, scripted_model, tmp_path):
            return RunnerRig(MyRunner(scripted_model.url), scripted_model.scripts.__setitem__, cwd=str(tmp_path))

The model of the runtime is scripted, so everything is visible at the `SessionHost`. A rig declares what its runtime
cannot do, and those tests are skipped.

Must never require what only one runtime does.
"""

import anyio
import anyio.to_thread

from toolcrib.agents.sessions.runtime import Conversation, Offered, Permit
from toolcrib.model.json import JsonObject
from toolcrib.model.sessions import SessionLimits, TurnEnd
from toolcrib.model.tools import CallResult
from toolcrib.testing.framework import pytest
from toolcrib.testing.processes import descendants, left_behind
from toolcrib.testing.recording_host import DURATION_MS, RecordingHost
from toolcrib.testing.runner_rig import ECHO, HEARD, OTHER, PIXEL, OwnTool, RunnerRig, do, prompt, say

__all__ = ["OwnTool", "RunnerContract", "RunnerRig"]

_CRIB_EVENTS = (
    "user_message", "approval_required", "approval_resolved", "question_prompt", "question_answered", "error", "done",
)  # fmt: skip
"""Events emitted by the owner of the `SessionHost`, never by a runtime."""


class RunnerContract:
    """Inherit as `Test…` and provide a fixture `rig` that returns a `RunnerRig`."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def anyio_backend(self) -> str:
        """Return `asyncio`, the only backend of runtimes."""
        return "asyncio"

    # Messages of the model.

    async def test_text_arrives_in_deltas_and_then_whole(self, rig: RunnerRig) -> None:
        text = "All of this is said, in more than one piece."
        host = RecordingHost()
        end = await rig.answer(host, say(text, chunk=10))
        assert (end.reason, end.failure, end.is_alive) == ("completed", None, True)
        pieces, (whole,) = host.of("text_delta"), host.of("text_message")
        assert "".join(piece.data["text"] for piece in pieces) == whole.data["text"] == text
        assert {piece.data["messageId"] for piece in pieces} == {whole.data["messageId"]}
        assert host.entries.index(pieces[-1]) < host.entries.index(whole)

    async def test_runner_emits_no_event_that_belongs_to_the_crib(self, rig: RunnerRig) -> None:
        host = RecordingHost()
        await rig.answer(host, do({"text": "I look."}, rig.use(ECHO, text="a")), HEARD)
        assert host.of(*_CRIB_EVENTS) == []

    async def test_conversation_runs_several_turns(self, rig: RunnerRig) -> None:
        rig.script("s", [say("one"), say("two")])
        host = RecordingHost()
        async with rig.open(host) as conversation:
            first = await conversation.turn(prompt("s"))
            assert host.texts() == ["one"]
            second = await conversation.turn("And now?")
        assert (first.reason, second.reason) == ("completed", "completed")
        assert host.texts() == ["one", "two"]
        assert len({entry.data["messageId"] for entry in host.of("text_message")}) == 2

    async def test_concurrent_conversations_do_not_mix(self, rig: RunnerRig) -> None:
        hosts = {name: RecordingHost() for name in ("a", "b")}

        async def run_turn(name: str) -> None:
            rig.script(name, [do(rig.use(ECHO, text=name)), say(f"done {name}")])
            async with rig.open(hosts[name]) as conversation:
                await conversation.turn(prompt(name))

        async with anyio.create_task_group() as tasks:
            for name in hosts:
                tasks.start_soon(run_turn, name)
        for name, host in hosts.items():
            assert host.texts() == [f"done {name}"]
            assert [entry.data["arguments"] for entry in host.of("call")] == [{"text": name}]

    # Tools of the crib.

    async def test_call_is_announced_then_made_then_its_result_emitted(self, rig: RunnerRig) -> None:
        host = RecordingHost()
        end = await rig.answer(host, do(rig.use(ECHO, text="ä", n=1)), HEARD)
        assert end.reason == "completed"
        (call,) = host.of("call")
        assert call.tool_call is not None
        order = [what for what in host.order(call.tool_call) if what != "tool_call_delta"]
        assert order == ["tool_call_start", "tool_call_end", "call", "call_done", "tool_result"]
        (start,), (ended,), (result,) = (host.of(kind) for kind in ("tool_call_start", "tool_call_end", "tool_result"))
        assert (start.data["server"], start.data["tool"]) == ("lab", "echo")
        assert start.data["toolName"] == rig.name_of(ECHO)
        assert ended.data["arguments"] == call.data["arguments"] == {"text": "ä", "n": 1}
        assert result.data["isError"] is False
        assert result.data["durationMs"] == DURATION_MS

    async def test_result_of_a_tool_reaches_the_model(self, rig: RunnerRig) -> None:
        host = RecordingHost()
        await rig.answer(host, do(rig.use(ECHO, text="a")), HEARD)
        (text,) = host.texts()
        assert "pong" in text

    async def test_every_part_of_a_result_is_emitted(self, rig: RunnerRig) -> None:
        parts: list[JsonObject] = [
            {"type": "text", "text": "x" * 60_000},
            {"type": "image", "data": PIXEL, "mimeType": "image/png"},
            {"type": "resource_link", "uri": "file:///a", "name": "a"},
        ]

        async def handle(offered: Offered, arguments: JsonObject) -> CallResult:
            return CallResult(parts, structured_content={"n": [1, None]}, has_structured=True)

        host = RecordingHost(handle)
        end = await rig.answer(host, do(rig.use(ECHO)), say("done"))
        assert end.reason == "completed"
        (result,) = host.of("tool_result")
        assert result.data["content"] == parts
        assert result.data["structuredContent"] == {"n": [1, None]}

    async def test_refusal_and_its_reason_reach_the_model_and_the_turn_continues(self, rig: RunnerRig) -> None:
        async def refuse(offered: Offered, arguments: JsonObject) -> CallResult:
            return CallResult.error("Rule 7 says no.")

        host = RecordingHost(refuse)
        end = await rig.answer(host, do(rig.use(ECHO, text="a")), HEARD)
        assert end.reason == "completed"
        (result,), (text,) = host.of("tool_result"), host.texts()
        assert result.data["isError"] is True
        assert "Rule 7 says no." in text

    async def test_two_calls_of_one_message_keep_their_own_ids_and_results(self, rig: RunnerRig) -> None:
        async def handle(offered: Offered, arguments: JsonObject) -> CallResult:
            return CallResult.text(f"{offered.name} {arguments['text']}")

        host = RecordingHost(handle)
        await rig.answer(host, do(rig.use(ECHO, text="1"), rig.use(OTHER, text="2")), say("done"))
        results = {entry.tool_call: entry.data["content"][0]["text"] for entry in host.of("tool_result")}
        called = {entry.tool_call: entry.data["tool"] for entry in host.of("call")}
        assert called.keys() == results.keys()
        assert {called[id]: text for id, text in results.items()} == {"echo": "echo 1", "other": "other 2"}

    async def test_tool_that_was_not_offered_is_not_called(self, rig: RunnerRig) -> None:
        host = RecordingHost()
        end = await rig.answer(host, do(rig.use(OTHER, text="a")), say("done"), tools=(ECHO,))
        assert (end.reason, host.texts()) == ("completed", ["done"])
        assert host.of("call") == []

    # Tools of the runtime itself.

    async def test_runtime_tool_runs_after_permission_and_reports_its_end(self, rig: RunnerRig) -> None:
        own = _own_tool(rig)
        host = RecordingHost(permits={own.name: Permit(True, own.arguments)})
        end = await rig.answer(host, do({"tool": own.name, "input": own.arguments}), say("done"))
        assert end.reason == "completed"
        (permit,) = host.of("permit")
        assert permit.data == {"tool": own.name, "arguments": own.arguments}
        assert permit.tool_call is not None
        order = [what for what in host.order(permit.tool_call) if what != "tool_call_delta"]
        assert order[:3] == ["tool_call_start", "tool_call_end", "permit"]
        assert set(order[3:]) == {"ended", "tool_result"}
        assert [entry.data for entry in host.of("ended")] == [{"isError": False}]
        assert own.has_run(own.arguments)

    async def test_refused_runtime_tool_does_not_run_and_the_model_reads_the_reason(self, rig: RunnerRig) -> None:
        own = _own_tool(rig)
        host = RecordingHost(permits={own.name: Permit(False, own.arguments, "Rule 8 says no.")})
        end = await rig.answer(host, do({"tool": own.name, "input": own.arguments}), HEARD)
        assert end.reason == "completed"
        assert not own.has_run(own.arguments)
        (result,), (text,) = host.of("tool_result"), host.texts()
        assert result.data["isError"] is True
        assert "Rule 8 says no." in str(result.data["content"])
        assert "Rule 8 says no." in text or not rig.gives_reasons

    async def test_runtime_tool_runs_with_the_permitted_arguments(self, rig: RunnerRig) -> None:
        own = _own_tool(rig)
        host = RecordingHost(permits={own.name: Permit(True, own.others)})
        await rig.answer(host, do({"tool": own.name, "input": own.arguments}), say("done"))
        assert own.has_run(own.others) is rig.takes_changes
        assert not own.has_run(own.arguments)

    async def test_question_reaches_the_person_and_the_answer_the_model(self, rig: RunnerRig) -> None:
        if rig.question is None:
            pytest.skip("This runtime asks no questions.")
        tool, arguments = rig.question
        host = RecordingHost(answers={"Which?": "A"})
        end = await rig.answer(host, do({"tool": tool, "input": arguments}), HEARD)
        assert end.reason == "completed"
        (asked,), (text,) = host.of("ask"), host.texts()
        assert asked.data["questions"] == arguments["questions"]
        assert "Which?" in text
        assert "A" in text.replace("Heard", "")

    # End of a turn.

    async def test_interrupt_during_a_call_cancels_it_and_ends_the_turn(self, rig: RunnerRig) -> None:
        host = RecordingHost(_never)
        rig.script("s", [do(rig.use(ECHO, text="a"))])
        rig.script("next", [say("I am here.")])
        async with rig.open(host) as conversation:
            end = await _run_interrupted(conversation, host, "call")
            assert (end.reason, end.failure) == ("interrupted", None)
            assert len(host.of("call_cancelled")) == 1
            if end.is_alive:
                assert (await conversation.turn(prompt("next"))).reason == "completed"
                assert host.texts() == ["I am here."]

    async def test_interrupt_during_the_model_answer_ends_the_turn(self, rig: RunnerRig) -> None:
        host = RecordingHost()
        rig.script("s", [say("word " * 1000, chunk=5, chunk_delay_ms=20)])
        async with rig.open(host) as conversation:
            end = await _run_interrupted(conversation, host, "text_delta")
        assert (end.reason, end.failure) == ("interrupted", None)
        assert len("".join(entry.data["text"] for entry in host.of("text_delta"))) < 5000

    async def test_interrupt_between_turns_changes_nothing(self, rig: RunnerRig) -> None:
        host = RecordingHost()
        rig.script("s", [say("one"), say("two")])
        async with rig.open(host) as conversation:
            await conversation.turn(prompt("s"))
            await conversation.interrupt()
            assert (await conversation.turn("And now?")).reason == "completed"
        assert host.texts() == ["one", "two"]

    async def test_model_refusal_fails_the_turn_with_a_message(self, rig: RunnerRig) -> None:
        host = RecordingHost()
        refusal: JsonObject = {"status": 400, "error": "invalid_request_error", "message": "Not like this."}
        end = await rig.answer(host, refusal)
        assert end.reason == "failed"
        assert end.failure is not None
        assert end.failure.code
        assert end.failure.message

    async def test_turn_ends_at_its_limit_of_model_turns(self, rig: RunnerRig) -> None:
        if not rig.counts_turns:
            pytest.skip("This runtime does not count its turns.")
        host = RecordingHost()
        end = await rig.answer(host, do(rig.use(ECHO, text="a")), limits=SessionLimits(turns=3))
        assert end.reason == "limit"
        assert 2 <= len(host.of("call")) <= 3

    # Resume and fork.

    async def test_resumed_conversation_has_its_history_and_tools(self, rig: RunnerRig) -> None:
        _needs_resume(rig)
        rig.script("s", [say("one"), do(rig.use(ECHO, text="a")), HEARD])
        async with rig.open(RecordingHost()) as conversation:
            first = await conversation.turn(prompt("s"))
            assert conversation.runtime in (None, first.runtime)
        assert first.runtime is not None
        host = RecordingHost()
        async with rig.open(host, resume=first.runtime) as conversation:
            second = await conversation.turn("And now?")
        assert (second.reason, second.runtime) == ("completed", first.runtime)
        assert len(host.of("call")) == 1
        (text,) = host.texts()
        assert "pong" in text

    async def test_fork_begins_with_the_history_and_leaves_the_original_unchanged(self, rig: RunnerRig) -> None:
        _needs_resume(rig)
        rig.script("s", [say("one"), say("two"), say("three")])
        async with rig.open(RecordingHost()) as conversation:
            first = await conversation.turn(prompt("s"))
        copy, again = RecordingHost(), RecordingHost()
        async with rig.open(copy, resume=first.runtime, fork=True) as conversation:
            forked = await conversation.turn("And now?")
        async with rig.open(again, resume=first.runtime) as conversation:
            resumed = await conversation.turn("And now?")
        assert forked.runtime not in (None, first.runtime)
        assert resumed.runtime == first.runtime
        assert (copy.texts(), again.texts()) == (["two"], ["two"])

    # Other operations of a conversation.

    async def test_model_can_be_changed_between_turns(self, rig: RunnerRig) -> None:
        if rig.model is None:
            pytest.skip("This runtime has one model.")
        rig.script("s", [say("{{model}}")])
        host = RecordingHost()
        async with rig.open(host, model=None) as conversation:
            await conversation.turn(prompt("s"))
            await conversation.set_model(rig.model)
            await conversation.turn(prompt("s"))
        before, after = host.texts()
        assert before != after == rig.model

    async def test_conversation_continues_in_another_mode(self, rig: RunnerRig) -> None:
        rig.script("s", [do(rig.use(ECHO, text="a")), say("done")])
        host = RecordingHost()
        async with rig.open(host) as conversation:
            for mode in ("plan", "acceptEdits", "bypassPermissions", "dontAsk", "default"):
                await conversation.set_mode(mode)
                assert (await conversation.turn(prompt("s"))).reason == "completed"
        assert len(host.of("call")) == 5

    async def test_conversation_reports_its_servers_with_their_tools(self, rig: RunnerRig) -> None:
        rig.script("s", [say("done")])
        async with rig.open(RecordingHost()) as conversation:
            await conversation.turn(prompt("s"))
            servers = {server.name: server.tools for server in await conversation.servers()}
        assert servers == {"lab": 1, "shed": 1}

    # Closing.

    async def test_closing_during_a_call_cancels_it_and_leaves_no_process(self, rig: RunnerRig) -> None:
        before = descendants()
        host = RecordingHost(_never)
        rig.script("s", [do(rig.use(ECHO, text="a"))])

        async def run_turn() -> None:
            async with rig.open(host) as conversation:
                await conversation.turn(prompt("s"))

        with anyio.fail_after(rig.timeout):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run_turn)
                await host.until("call")
                tasks.cancel_scope.cancel()
        assert len(host.of("call_cancelled")) == 1
        assert await anyio.to_thread.run_sync(left_behind, before) == {}

    async def test_closed_conversation_leaves_no_process(self, rig: RunnerRig) -> None:
        before = descendants()
        await rig.answer(RecordingHost(), say("done"))
        assert await anyio.to_thread.run_sync(left_behind, before) == {}


async def _never(offered: Offered, arguments: JsonObject) -> CallResult:
    await anyio.sleep_forever()
    return CallResult()


async def _run_interrupted(conversation: Conversation, host: RecordingHost, what: str) -> TurnEnd:
    """Run a turn that is interrupted once `what` is recorded, and return its end."""
    ends: list[TurnEnd] = []

    async def run_turn() -> None:
        ends.append(await conversation.turn(prompt("s")))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_turn)
        await host.until(what)
        await conversation.interrupt()
    return ends[0]


def _own_tool(rig: RunnerRig) -> OwnTool:
    if rig.own_tool is None:
        pytest.skip("This runtime has no tools of its own.")
    return rig.own_tool


def _needs_resume(rig: RunnerRig) -> None:
    if not rig.resumes:
        pytest.skip("This runtime cannot resume conversations.")
