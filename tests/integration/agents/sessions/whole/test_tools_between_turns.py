"""Tools that are removed and added during a session."""

import pytest

from integration.agents.sessions.whole.claude_crib import ClaudeCrib, tool_block
from toolcrib import ToolServer, tool
from toolcrib.model.json import JsonObject
from toolcrib.testing.runner_rig import do, say

pytestmark = pytest.mark.anyio


@tool(read_only=True)
async def extra() -> str:
    """Return one more text."""
    return "something more"


def offered(claude: ClaudeCrib) -> str:
    """Return the tools, system prompt and messages of the last request to the model."""
    body: JsonObject = claude.model.bodies[-1]
    return str([body["tools"], body["system"], body["messages"]])


async def test_removed_tool_is_an_error_and_an_added_tool_can_be_called(claude: ClaudeCrib) -> None:
    look = claude.script("look", do(tool_block("mcp__lab__look")), say("Looked."))
    more = claude.script("more", do(tool_block("mcp__more__extra")), say("Heard."))
    async with claude.crib.session(mode="acceptEdits") as session:
        before = await claude.send(session.id, look)
        claude.crib.catalog.exchange(["lab"], [], ())
        removed = await claude.send(session.id, look)
        too_early = await claude.send(session.id, more)
        claude.crib.register(ToolServer("more", tools=[extra]))
        added = await claude.send(session.id, more)
        runtime = (await claude.crib.sessions.get(session.id)).runtime

    assert [turn.reason for turn in (before, removed, too_early, added)] == ["completed"] * 4
    assert [turn.calls[0].is_error for turn in (before, removed, too_early, added)] == [False, True, True, False]
    assert claude.lab.calls == [{"tool": "look"}]
    assert "something more" in added.calls[0].text
    assert "mcp__more__extra" in offered(claude)
    assert "Looked." in str(claude.model.bodies[-1]["messages"]), "the conversation was restarted"
    assert runtime is not None
