"""Calls of unavailable tools are recorded, and a fork counts as one session."""

from collections.abc import AsyncGenerator
from pathlib import Path

import orjson
import pytest

from integration.agents.sessions.whole.claude_crib import ClaudeCrib, open_claude_crib, tool_block
from toolcrib.base.settings import Environment
from toolcrib.testing.runner_rig import do, say
from toolcrib.testing.scripted_model.server import ScriptedModel

pytestmark = pytest.mark.anyio


@pytest.fixture
async def claude(
    claude_environment: Environment, scripted_model: ScriptedModel, tmp_path: Path
) -> AsyncGenerator[ClaudeCrib]:
    async with open_claude_crib(tmp_path, claude_environment, scripted_model) as claude:
        yield claude


async def test_calls_of_unavailable_tools_are_recorded(claude: ClaudeCrib) -> None:
    await claude.crib.permissions.add({"effect": "deny", "pattern": "lab/change"}, by="owner")
    calls = (
        tool_block("mcp__lab__change", text="a"),
        tool_block("mcp__nowhere__run", command="x"),
        tool_block("mcp__lab__look"),
    )
    prompt = claude.script("s", *map(do, calls), say("Done."))
    async with claude.crib.session(mode="bypassPermissions") as session:
        turn = await claude.send(session.id, prompt)
        records = list((await claude.records(session.id)).values())
    assert [call.is_error for call in turn.calls] == [True, True, False]
    assert claude.lab.calls == [{"tool": "look"}]
    assert [(call[0]["server"], call[0]["tool"], call[0].get("refused")) for call in records] == [
        ("lab", "change", "tool.unknown"),
        ("nowhere", "run", "tool.unknown"),
        ("lab", "look", None),
    ]
    assert records[0][0]["arguments"] == {"text": "a"}


async def test_fork_counts_as_one_session_while_it_is_created(claude: ClaudeCrib) -> None:
    crib = claude.crib
    async with crib.session(mode="bypassPermissions") as session:
        await claude.send(session.id, claude.script("one", say("One.")))
        fork = await crib.sessions.fork(session.id)
        prompt = claude.script("two", do(tool_block("mcp__toolcrib__get_session_count")), say("Two."))
        (call,) = (await claude.send(fork.id, prompt)).calls
        text = call.result["content"][0]["text"]
    assert orjson.loads(text)["count"] == 2
