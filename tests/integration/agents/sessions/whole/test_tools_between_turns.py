"""Tools that go and come while a session lives."""

import pytest

from integration.agents.sessions.whole.workshop import Workshop, use
from toolcrib import ToolServer, tool
from toolcrib.model.json import JsonObject
from toolcrib.testing.runner_rig import do, say

pytestmark = pytest.mark.anyio


@tool(read_only=True)
async def extra() -> str:
    """Say something more."""
    return "something more"


def offered(workshop: Workshop) -> str:
    """What the model was told it has, in the last request."""
    body: JsonObject = workshop.model.bodies[-1]
    return str([body["tools"], body["system"], body["messages"]])


async def test_a_tool_that_went_is_an_error_to_read_and_one_that_came_can_be_called(workshop: Workshop) -> None:
    look = workshop.script("look", do(use("mcp__lab__look")), say("Looked."))
    more = workshop.script("more", do(use("mcp__more__extra")), say("Heard."))
    async with workshop.crib.session(mode="acceptEdits") as session:
        there = await workshop.say(session.id, look)
        workshop.crib.catalog.exchange(["lab"], [], ())
        gone = await workshop.say(session.id, look)
        too_early = await workshop.say(session.id, more)
        workshop.crib.register(ToolServer("more", tools=[extra]))
        came = await workshop.say(session.id, more)
        runtime = (await workshop.crib.sessions.get(session.id)).runtime

    assert [turn.reason for turn in (there, gone, too_early, came)] == ["completed"] * 4
    assert [turn.calls[0].is_error for turn in (there, gone, too_early, came)] == [False, True, True, False]
    assert workshop.lab.noted == [{"tool": "look"}]
    assert "something more" in came.calls[0].text
    assert "mcp__more__extra" in offered(workshop)
    assert "Looked." in str(workshop.model.bodies[-1]["messages"]), "it is the same conversation"
    assert runtime is not None
