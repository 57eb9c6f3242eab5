"""Crew tools of sessions with the real Claude Code: default, permitted, scheduled and web sessions."""

from pathlib import Path

import pytest

from integration.agents.sessions.whole.claude_crib import open_claude_crib, tool_block
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.agents.zoo.input import AgentInput
from toolcrib.base.settings import Environment
from toolcrib.model.principals import Source
from toolcrib.testing.runner_rig import do, say
from toolcrib.testing.scripted_model.server import ScriptedModel

pytestmark = pytest.mark.anyio

GRANT = "mcp__crew__crib_grant_credits"
BOTH = ["crew/crib_list_agents", GRANT]
SCENARIOS: list[tuple[str, Source, list[str] | None, dict[str, bool]]] = [
    ("default agent", "api", None, {"list": True, "check": True, "grant": False}),
    ("explicit", "api", BOTH, {"list": True, "check": False, "grant": True}),
    ("schedule", "scheduler", BOTH, {"list": True, "check": False, "grant": False}),
    ("web", "web", None, {"list": True, "check": True, "grant": True}),
]
"""Name, source of the session, permissions of its agent, and which of three tools run."""


async def test_each_source_of_sessions_has_its_crew_tools(
    no_leaked_children: None, claude_environment: Environment, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    async with open_claude_crib(tmp_path, claude_environment, scripted_model) as claude:
        prompt = claude.script(
            "crew",
            do(
                tool_block("mcp__crew__crib_list_agents"),
                tool_block("mcp__crew__crib_check_credits"),
                tool_block(GRANT, agent="reviewer", turns=1),
            ),
            say("Done."),
        )
        for name, source, permissions, expected in SCENARIOS:
            agent_input = AgentInput.model_validate({"name": f"Agent of {name}", "toolPermissions": permissions})
            agent = (await claude.crib.zoo.create(agent_input, by="owner")).agent.id
            session = await claude.crib.sessions.create(NewSession(source, agent=agent, mode="bypassPermissions"))
            turn = await claude.send(session.id, prompt)
            ran = dict(zip(("list", "check", "grant"), [not call.is_error for call in turn.calls], strict=True))
            assert ran == expected, (name, [call.text for call in turn.calls])
            await claude.crib.sessions.close(session.id)
