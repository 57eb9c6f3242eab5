"""The runtime contract on the scripted runtime, and its failures for runtimes that break one promise each."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from toolcrib.agents.sessions.runtime import Brief, Permit, SessionHost
from toolcrib.model.json import JsonObject
from toolcrib.model.sessions import SessionEventKind, TurnEnd
from toolcrib.testing.played import QUESTION, PlayedConversation, PlayedRunner
from toolcrib.testing.runners import OwnTool, RunnerContract, RunnerRig


def played_rig(runner: PlayedRunner, folder: Path) -> RunnerRig:
    """Return the rig of the scripted runtime."""
    options = [{"label": "A", "description": "a"}, {"label": "B", "description": "b"}]
    question: JsonObject = {"question": "Which?", "header": "H", "multiSelect": False, "options": options}
    return RunnerRig(
        runner,
        runner.scripts.__setitem__,
        str(folder),
        own_tool=OwnTool("Write", {"n": 1}, {"n": 2}, lambda arguments: ("Write", arguments) in runner.ran),
        question=(QUESTION, {"questions": [question]}),
        model="another",
        timeout=5,
    )


class TestPlayedRunner(RunnerContract):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> RunnerRig:
        return played_rig(PlayedRunner(), tmp_path)


class ForwardingHost:
    """A host that passes everything on to another."""

    def __init__(self, host: SessionHost) -> None:
        self.host = host
        self.principal = host.principal
        self.ended = host.ended
        self.refused = host.refused
        self.ask = host.ask
        self.call = host.call

    def emit(self, kind: SessionEventKind, data: JsonObject, parent: str | None = None) -> None:
        self.host.emit(kind, data, parent)

    async def permit(self, tool: str, arguments: JsonObject, tool_call: str) -> Permit:
        return await self.host.permit(tool, arguments, tool_call)


class UnannouncedCalls(ForwardingHost):
    """Does not announce calls."""

    def emit(self, kind: SessionEventKind, data: JsonObject, parent: str | None = None) -> None:
        if not kind.startswith("tool_call"):
            super().emit(kind, data, parent)


class TextOnlyResults(ForwardingHost):
    """Emits only the text parts of results."""

    def emit(self, kind: SessionEventKind, data: JsonObject, parent: str | None = None) -> None:
        content = [part for part in data.get("content", ()) if part["type"] == "text"]
        super().emit(kind, {**data, "content": content} if kind == "tool_result" else data, parent)


class OwnTurnEnd(ForwardingHost):
    """Emits the end of the turn itself."""

    def emit(self, kind: SessionEventKind, data: JsonObject, parent: str | None = None) -> None:
        super().emit(kind, data, parent)
        if kind == "text_message":
            super().emit("done", {"reason": "completed"}, parent)


class IgnoredPermits(ForwardingHost):
    """Runs refused calls, with the arguments of the model."""

    async def permit(self, tool: str, arguments: JsonObject, tool_call: str) -> Permit:
        return replace(await super().permit(tool, arguments, tool_call), allowed=True, arguments=arguments)


class RunnerWithHost(PlayedRunner):
    """Plays scripts with a host that changes what it passes on."""

    def __init__(self, wrap_host: Callable[[SessionHost], SessionHost]) -> None:
        super().__init__()
        self._wrap_host = wrap_host

    @asynccontextmanager
    async def open(self, brief: Brief, host: SessionHost) -> AsyncGenerator[PlayedConversation]:
        async with super().open(brief, self._wrap_host(host)) as conversation:
            yield conversation


class RunnerWithoutResume(PlayedRunner):
    """Starts a new conversation where it should resume one."""

    @asynccontextmanager
    async def open(self, brief: Brief, host: SessionHost) -> AsyncGenerator[PlayedConversation]:
        async with super().open(replace(brief, resume=None), host) as conversation:
            yield conversation


class RunnerWithoutFork(PlayedRunner):
    """Continues the conversation that it should copy."""

    @asynccontextmanager
    async def open(self, brief: Brief, host: SessionHost) -> AsyncGenerator[PlayedConversation]:
        async with super().open(replace(brief, fork=False), host) as conversation:
            yield conversation


class _AlwaysCompleted(PlayedConversation):
    async def turn(self, text: str) -> TurnEnd:
        return replace(await super().turn(text), reason="completed", failure=None)


class AlwaysCompletedRunner(PlayedRunner):
    """Reports every turn as completed."""

    @asynccontextmanager
    async def open(self, brief: Brief, host: SessionHost) -> AsyncGenerator[PlayedConversation]:
        async with super().open(brief, host) as it:
            yield _AlwaysCompleted(it.runner, it.brief, it.host, it.runtime, [])


SUITE = RunnerContract()
BROKEN: list[tuple[Callable[[], PlayedRunner], Callable[[RunnerRig], Awaitable[None]]]] = [
    (lambda: RunnerWithHost(UnannouncedCalls), SUITE.test_call_is_announced_then_made_then_its_result_emitted),
    (lambda: RunnerWithHost(TextOnlyResults), SUITE.test_every_part_of_a_result_is_emitted),
    (lambda: RunnerWithHost(OwnTurnEnd), SUITE.test_runner_emits_no_event_that_belongs_to_the_crib),
    (
        lambda: RunnerWithHost(IgnoredPermits),
        SUITE.test_refused_runtime_tool_does_not_run_and_the_model_reads_the_reason,
    ),
    (
        lambda: RunnerWithHost(IgnoredPermits),
        SUITE.test_runtime_tool_runs_with_the_permitted_arguments,
    ),
    (RunnerWithoutResume, SUITE.test_resumed_conversation_has_its_history_and_tools),
    (RunnerWithoutResume, SUITE.test_fork_begins_with_the_history_and_leaves_the_original_unchanged),
    (RunnerWithoutFork, SUITE.test_fork_begins_with_the_history_and_leaves_the_original_unchanged),
    (AlwaysCompletedRunner, SUITE.test_interrupt_during_a_call_cancels_it_and_ends_the_turn),
    (AlwaysCompletedRunner, SUITE.test_interrupt_during_the_model_answer_ends_the_turn),
    (AlwaysCompletedRunner, SUITE.test_model_refusal_fails_the_turn_with_a_message),
    (AlwaysCompletedRunner, SUITE.test_turn_ends_at_its_limit_of_model_turns),
]


@pytest.mark.anyio
@pytest.mark.parametrize(("make", "promise"), BROKEN)
async def test_runner_that_breaks_the_contract_fails_its_test(
    tmp_path: Path, make: Callable[[], PlayedRunner], promise: Callable[[RunnerRig], Awaitable[None]]
) -> None:
    with pytest.raises((AssertionError, ValueError)):
        await promise(played_rig(make(), tmp_path))
