"""Who gets which crew tools, with the real Claude Code: by default, by permission, on a schedule, on the web."""

from pathlib import Path

import pytest

from integration.agents.sessions.whole.workshop import open_workshop, use
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
"""Where the session comes from, what its agent may use, and which of three tools run."""


async def test_each_kind_of_session_gets_exactly_the_crew_tools_it_should(
    no_leaked_children: None, claude_environment: Environment, scripted_model: ScriptedModel, tmp_path: Path
) -> None:
    async with open_workshop(tmp_path, claude_environment, scripted_model) as workshop:
        prompt = workshop.script(
            "crew",
            do(
                use("mcp__crew__crib_list_agents"),
                use("mcp__crew__crib_check_credits"),
                use(GRANT, agent="reviewer", turns=1),
            ),
            say("Done."),
        )
        for name, source, permissions, expected in SCENARIOS:
            given = AgentInput.model_validate({"name": f"Agent of {name}", "toolPermissions": permissions})
            agent = (await workshop.crib.zoo.create(given, by="owner")).agent.id
            session = await workshop.crib.sessions.create(NewSession(source, agent=agent, mode="bypassPermissions"))
            turn = await workshop.say(session.id, prompt)
            ran = dict(zip(("list", "check", "grant"), [not call.is_error for call in turn.calls], strict=True))
            assert ran == expected, (name, [call.text for call in turn.calls])
            await workshop.crib.sessions.close(session.id)
