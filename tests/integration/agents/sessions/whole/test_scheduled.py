"""Scheduled sessions lack blocked tools: in the first turn, after a resume, and in a fork."""

from pathlib import Path

import pytest

from integration.agents.sessions.whole.claude_crib import ClaudeCrib, open_claude_crib, tool_block
from toolcrib import ToolServer, tool
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.agents.zoo.input import AgentInput
from toolcrib.base.settings import Environment
from toolcrib.model.json import Json
from toolcrib.testing.runner_rig import do, say
from toolcrib.testing.scripted_model.server import ScriptedModel

pytestmark = pytest.mark.anyio

BLOCKED = "mcp__post__send"
sent: list[str] = []


@tool(scheduler_blocked=True, always_load=True)
async def send(text: str) -> str:
    """Send a letter."""
    sent.append(text)
    return "sent"


@tool(always_load=True)
async def draft(text: str) -> str:
    """Draft a letter."""
    return "drafted"


def listed_tools(claude: ClaudeCrib) -> set[str]:
    """Return which of these tools the last request to the model lists."""
    body = claude.model.bodies[-1]
    names: Json = [each.get("name") for each in body["tools"]]
    return {name for name in ("mcp__post__send", "mcp__post__draft", "AskUserQuestion") if name in names}


async def test_blocked_tools_stay_unavailable_after_resume_and_fork(
    no_leaked_children: None, claude_environment: Environment, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    post = ToolServer("post", tools=[send, draft])
    async with open_claude_crib(tmp_path, claude_environment, scripted_model, more=[post]) as claude:
        crib = claude.crib
        prompt = claude.script("s", do(tool_block(BLOCKED, text="a")), say("Done."))
        granted = AgentInput.model_validate({"name": "Postman", "toolPermissions": ["post/*", "claude_code/*"]})
        agent = (await crib.zoo.create(granted, by="owner")).agent.id
        by_hand = await crib.sessions.create(NewSession("api", agent=agent, mode="acceptEdits"))
        assert not (await claude.send(by_hand.id, prompt)).calls[0].is_error
        assert listed_tools(claude) == {BLOCKED, "mcp__post__draft", "AskUserQuestion"}
        await crib.sessions.close(by_hand.id)
        sent.clear()

        first = await crib.sessions.create(NewSession("scheduler", agent=agent, mode="acceptEdits"))
        for id in (first.id, first.id, (await crib.sessions.fork(first.id)).id):
            turn = await claude.send(id, prompt)
            assert turn.calls[0].is_error
            assert listed_tools(claude) == {"mcp__post__draft"}
            await crib.sessions.close(id)
        assert (await crib.sessions.get(id)).source == "scheduler"
        assert sent == []
