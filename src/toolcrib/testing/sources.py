"""Conformance suite for every `ToolSource`, to inherit.

Example:

    class TestMySource(SourceContract):
        @pytest.fixture
        async def rig(self):
            async with MySource() as source:
                yield SourceRig(source, echo="echo", fails="fail", hangs="sleep")
"""

import re
from dataclasses import dataclass, field
from typing import get_args

import anyio

from toolcrib.model.errors import InvalidRequest, NotFound
from toolcrib.model.json import JsonObject, canonical
from toolcrib.model.principals import Principal
from toolcrib.model.problems import Problem
from toolcrib.model.sources import CallContext, ToolSource
from toolcrib.model.tools import CallResult, ServerKind
from toolcrib.testing.framework import pytest

OWNER = Principal("owner", "owner", "cli")


@dataclass(frozen=True, slots=True)
class SourceRig:
    """A source, and which of its tools the tests use.

    `echo` returns a result that contains the argument `text`, `fails` fails without arguments, `hangs` never returns.
    `wrong` are invalid arguments for `echo`; None if a server validates them. `timeout` is the timeout of each call in
    seconds.
    """

    source: ToolSource
    echo: str
    fails: str
    hangs: str
    wrong: JsonObject | None = None
    timeout: float = 15.0
    _calls: list[str] = field(default_factory=list[str])

    async def call(self, tool: str, arguments: JsonObject | None = None) -> CallResult:
        """Call a tool as the gate does."""
        given = arguments or {}
        run = self.source.prepare(tool, given, canonical(given))
        self._calls.append(tool)
        with anyio.fail_after(self.timeout):
            return await run(CallContext(OWNER, f"call-{len(self._calls)}"))


class SourceContract:
    """Inherit as `Test…` and provide a fixture `rig` that returns a `SourceRig`."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def anyio_backend(self) -> str:
        """Return `asyncio`, the only backend of sources."""
        return "asyncio"

    async def test_name_is_safe_and_kind_is_known(self, rig: SourceRig) -> None:
        assert re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", rig.source.name)
        assert rig.source.kind in get_args(ServerKind)

    async def test_tools_are_unique_and_have_object_schemas(self, rig: SourceRig) -> None:
        tools = rig.source.tools()
        names = [tool.ref.tool for tool in tools]
        assert {rig.echo, rig.fails, rig.hangs} <= set(names)
        assert len(names) == len(set(names))
        assert {tool.ref.server for tool in tools} == {rig.source.name}
        assert {tool.kind for tool in tools} == {rig.source.kind}
        assert all(tool.input_schema.get("type") == "object" and "properties" in tool.input_schema for tool in tools)
        assert all(isinstance(problem, Problem) for problem in rig.source.problems())

    async def test_definition_is_stable_while_nothing_changes(self, rig: SourceRig) -> None:
        before = {tool.ref: tool.definition_hash for tool in rig.source.tools()}
        await rig.call(rig.echo, {"text": "a"})
        assert {tool.ref: tool.definition_hash for tool in rig.source.tools()} == before

    async def test_call_returns_the_result_of_the_tool(self, rig: SourceRig) -> None:
        result = await rig.call(rig.echo, {"text": "höre"})
        assert (result.is_error, result.is_final) == (False, True)
        assert "höre" in _text_of(result)

    async def test_prepared_call_does_nothing_until_it_is_run(self, rig: SourceRig) -> None:
        rig.source.prepare(rig.fails, {}, canonical({}))
        assert not (await rig.call(rig.echo, {"text": "a"})).is_error

    async def test_missing_tool_is_not_found(self, rig: SourceRig) -> None:
        with pytest.raises(NotFound) as caught:
            rig.source.prepare("no-such-tool", {}, canonical({}))
        assert caught.value.code == "tool.unknown"

    async def test_invalid_arguments_are_refused_before_anything_runs(self, rig: SourceRig) -> None:
        if rig.wrong is None:
            pytest.skip("This source leaves it to a server to check arguments.")
        with pytest.raises(InvalidRequest) as caught:
            rig.source.prepare(rig.echo, rig.wrong, canonical(rig.wrong))
        assert caught.value.code == "tool.arguments_invalid"

    async def test_failure_of_a_tool_is_an_error_result_with_a_message(self, rig: SourceRig) -> None:
        result = await rig.call(rig.fails)
        assert result.is_error
        assert any(block.get("text") for block in result.content)

    async def test_cancelled_call_stays_cancelled_and_others_continue(self, rig: SourceRig) -> None:
        run = rig.source.prepare(rig.hangs, {}, canonical({}))
        answered: list[CallResult] = []

        async def hang() -> None:
            answered.append(await run(CallContext(OWNER, "hanging")))

        with anyio.fail_after(rig.timeout):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hang)
                assert "while it hangs" in _text_of(await rig.call(rig.echo, {"text": "while it hangs"}))
                tasks.cancel_scope.cancel()
        assert answered == []
        assert "after it" in _text_of(await rig.call(rig.echo, {"text": "after it"}))

    async def test_concurrent_calls_do_not_mix(self, rig: SourceRig) -> None:
        echoed: dict[str, str] = {}

        async def call_echo(text: str) -> None:
            echoed[text] = _text_of(await rig.call(rig.echo, {"text": text}))

        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(call_echo, f"<{number}>")
        assert len(echoed) == 10
        assert all(text in answer for text, answer in echoed.items())


def _text_of(result: CallResult) -> str:
    """Return the whole result as one text."""
    return f"{list(result.content)} {result.structured_content}"
