"""Which crew tools a caller has, in the scenarios of the reference, in whole cribs."""

from pathlib import Path

import pytest

from integration.builtin.crew.crews import Crew, PlayedClaude, agent_input
from toolcrib import Crib, Settings
from toolcrib.base.settings import Environment
from toolcrib.model.errors import NotFound
from toolcrib.model.principals import Principal

pytestmark = pytest.mark.anyio

PRIVILEGED = {"crib_grant_credits", "crib_credit_config"}
BLOCKED = {"crib_send_message", "crib_grant_credits", "crib_credit_config", "crib_ask_owner"}
"""The tools that schedules lack and that need nothing but the crib; the other four need a GitHub token."""
ALL_BLOCKED = BLOCKED | {
    "crib_github_fork_repo", "crib_github_create_pr", "crib_github_create_issue", "crib_github_comment_on_pr",
}  # fmt: skip


def visible_tools(crew: Crew, principal: Principal) -> set[str]:
    return {each.ref.tool for each in crew.crib.gate.listing(principal).tools if each.ref.server == "crew"}


async def test_default_agent_has_all_but_the_privileged_tools(crew: Crew) -> None:
    everything = visible_tools(crew, crew.crib.owner("web"))
    assert everything >= BLOCKED | PRIVILEGED
    assert visible_tools(crew, (await crew.session("cook")).principal) == everything - PRIVILEGED


async def test_explicit_permissions_replace_the_default_and_may_be_privileged(crew: Crew) -> None:
    granted = ["crew/crib_send_message", "crew/crib_grant_credits"]
    await crew.crib.zoo.create(agent_input("purser", permissions=granted), by="test")
    assert visible_tools(crew, (await crew.session("purser")).principal) == {"crib_send_message", "crib_grant_credits"}


async def test_scheduled_session_lacks_the_blocked_tools_despite_grants(crew: Crew) -> None:
    await crew.crib.zoo.create(agent_input("purser", permissions=["crew/*"]), by="test")
    everything = visible_tools(crew, crew.crib.owner("web"))
    for name, expected in (("purser", everything - BLOCKED), ("cook", everything - BLOCKED - PRIVILEGED)):
        session = await crew.session(name, source="scheduler")
        assert visible_tools(crew, session.principal) == expected
        resumed = await crew.crib.sessions.fork(session.id)
        child = await crew.session("purser", source="agent", creator=session.principal)
        assert visible_tools(crew, resumed.principal) == expected
        assert not visible_tools(crew, child.principal) & BLOCKED
        for tool in sorted(BLOCKED):
            with pytest.raises(NotFound):
                await crew.call(tool, session.principal)


async def test_scheduled_session_lacks_all_eight_blocked_tools(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", default_cwd=tmp_path, github_token="ghp_x")
    async with Crib(settings, environment=Environment({"HOME": str(tmp_path)})) as crib:
        opened = Crew(crib, PlayedClaude())
        await crib.zoo.create(agent_input("purser", permissions=["crew/*"]), by="test")
        everything = visible_tools(opened, crib.owner("web"))
        assert everything >= ALL_BLOCKED
        session = await opened.session("purser", source="scheduler")
        assert visible_tools(opened, session.principal) == everything - ALL_BLOCKED


async def test_console_session_has_every_crew_tool(crew: Crew) -> None:
    session = await crew.session("cook", source="web")
    assert visible_tools(crew, session.principal) == visible_tools(crew, crew.crib.owner("web"))


async def test_why_names_the_requirement_of_a_missing_tool(crew: Crew) -> None:
    explained = await crew.crib.why("crew/crib_github_star_repo", principal=crew.crib.owner("cli"))
    assert explained.verdict == "unknown"
    assert "It needs a GitHub token" in explained.decided_by.reason
