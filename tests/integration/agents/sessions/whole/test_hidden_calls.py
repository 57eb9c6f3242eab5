"""Calls of tools that a session does not have are on record, and a fork is one session."""

from collections.abc import AsyncGenerator
from pathlib import Path

import orjson
import pytest

from integration.agents.sessions.whole.workshop import Workshop, open_workshop, use
from toolcrib.base.settings import Environment
from toolcrib.testing.runner_rig import do, say
from toolcrib.testing.scripted_model.server import ScriptedModel

pytestmark = pytest.mark.anyio


@pytest.fixture
async def workshop(
    claude_environment: Environment, scripted_model: ScriptedModel, tmp_path: Path
) -> AsyncGenerator[Workshop]:
    async with open_workshop(tmp_path, claude_environment, scripted_model) as workshop:
        yield workshop


async def test_calls_of_tools_that_a_session_does_not_have_are_on_record(workshop: Workshop) -> None:
    await workshop.crib.permissions.add({"effect": "deny", "pattern": "lab/change"}, by="owner")
    calls = (use("mcp__lab__change", text="a"), use("mcp__nowhere__run", command="x"), use("mcp__lab__look"))
    prompt = workshop.script("s", *map(do, calls), say("Done."))
    async with workshop.crib.session(mode="bypassPermissions") as session:
        turn = await workshop.say(session.id, prompt)
        records = list((await workshop.records(session.id)).values())
    assert [call.is_error for call in turn.calls] == [True, True, False]
    assert workshop.lab.noted == [{"tool": "look"}]
    assert [(call[0]["server"], call[0]["tool"], call[0].get("refused")) for call in records] == [
        ("lab", "change", "tool.unknown"),
        ("nowhere", "run", "tool.unknown"),
        ("lab", "look", None),
    ]
    assert records[0][0]["arguments"] == {"text": "a"}


async def test_a_fork_counts_once_while_it_is_being_written(workshop: Workshop) -> None:
    crib = workshop.crib
    async with crib.session(mode="bypassPermissions") as session:
        await workshop.say(session.id, workshop.script("one", say("One.")))
        fork = await crib.sessions.fork(session.id)
        prompt = workshop.script("two", do(use("mcp__toolcrib__get_session_count")), say("Two."))
        (call,) = (await workshop.say(fork.id, prompt)).calls
        text = call.result["content"][0]["text"]
    assert orjson.loads(text)["count"] == 2
