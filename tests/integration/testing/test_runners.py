"""The suite of runners, on the one that plays scripts by itself; and that a runner which breaks a promise fails it."""

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
    """The rig of a runner that plays scripts."""
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


class Between:
    """A host that passes everything on."""

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


class Silent(Between):
    """Does not announce calls."""

    def emit(self, kind: SessionEventKind, data: JsonObject, parent: str | None = None) -> None:
        if not kind.startswith("tool_call"):
            super().emit(kind, data, parent)


class Curt(Between):
    """Tells the text parts of results only."""

    def emit(self, kind: SessionEventKind, data: JsonObject, parent: str | None = None) -> None:
        content = [part for part in data.get("content", ()) if part["type"] == "text"]
        super().emit(kind, {**data, "content": content} if kind == "tool_result" else data, parent)


class Talkative(Between):
    """Tells the end of the turn itself."""

    def emit(self, kind: SessionEventKind, data: JsonObject, parent: str | None = None) -> None:
        super().emit(kind, data, parent)
        if kind == "text_message":
            super().emit("done", {"reason": "completed"}, parent)


class Headstrong(Between):
    """Runs what was refused, with the arguments the model gave."""

    async def permit(self, tool: str, arguments: JsonObject, tool_call: str) -> Permit:
        return replace(await super().permit(tool, arguments, tool_call), allowed=True, arguments=arguments)


class ThroughDesk(PlayedRunner):
    """Plays scripts at a host that changes things."""

    def __init__(self, between: Callable[[SessionHost], SessionHost]) -> None:
        super().__init__()
        self._between = between

    @asynccontextmanager
    async def open(self, brief: Brief, host: SessionHost) -> AsyncGenerator[PlayedConversation]:
        async with super().open(brief, self._between(host)) as conversation:
            yield conversation


class Forgetful(PlayedRunner):
    """Begins anew where it should resume."""

    @asynccontextmanager
    async def open(self, brief: Brief, host: SessionHost) -> AsyncGenerator[PlayedConversation]:
        async with super().open(replace(brief, resume=None), host) as conversation:
            yield conversation


class Sharing(PlayedRunner):
    """Goes on with what it should copy."""

    @asynccontextmanager
    async def open(self, brief: Brief, host: SessionHost) -> AsyncGenerator[PlayedConversation]:
        async with super().open(replace(brief, fork=False), host) as conversation:
            yield conversation


class _Cheerful(PlayedConversation):
    async def turn(self, text: str) -> TurnEnd:
        return replace(await super().turn(text), reason="completed", failure=None)


class Cheerful(PlayedRunner):
    """Says that all is well."""

    @asynccontextmanager
    async def open(self, brief: Brief, host: SessionHost) -> AsyncGenerator[PlayedConversation]:
        async with super().open(brief, host) as it:
            yield _Cheerful(it.runner, it.brief, it.host, it.runtime, [])


SUITE = RunnerContract()
BROKEN: list[tuple[Callable[[], PlayedRunner], Callable[[RunnerRig], Awaitable[None]]]] = [
    (lambda: ThroughDesk(Silent), SUITE.test_a_call_is_announced_then_made_then_its_result_is_told),
    (lambda: ThroughDesk(Curt), SUITE.test_every_part_of_a_result_is_told),
    (lambda: ThroughDesk(Talkative), SUITE.test_a_runner_tells_nothing_that_is_the_desks_to_tell),
    (
        lambda: ThroughDesk(Headstrong),
        SUITE.test_a_tool_of_the_runtime_that_is_refused_does_not_run_and_the_model_reads_why,
    ),
    (lambda: ThroughDesk(Headstrong), SUITE.test_a_tool_of_the_runtime_runs_with_the_arguments_that_were_permitted),
    (Forgetful, SUITE.test_a_conversation_is_resumed_with_its_history_and_its_tools),
    (Forgetful, SUITE.test_a_copy_of_a_conversation_begins_with_its_history_and_leaves_it_alone),
    (Sharing, SUITE.test_a_copy_of_a_conversation_begins_with_its_history_and_leaves_it_alone),
    (Cheerful, SUITE.test_an_interrupt_during_a_call_cancels_it_and_ends_the_turn),
    (Cheerful, SUITE.test_an_interrupt_while_the_model_speaks_ends_the_turn),
    (Cheerful, SUITE.test_a_model_that_refuses_fails_the_turn_with_a_sentence),
    (Cheerful, SUITE.test_a_turn_ends_at_its_limit_of_model_turns),
]


@pytest.mark.anyio
@pytest.mark.parametrize(("make", "promise"), BROKEN)
async def test_a_runner_that_breaks_a_promise_fails_the_test_of_it(
    tmp_path: Path, make: Callable[[], PlayedRunner], promise: Callable[[RunnerRig], Awaitable[None]]
) -> None:
    with pytest.raises((AssertionError, ValueError)):
        await promise(played_rig(make(), tmp_path))
