"""Who has which crew tools: the scenarios of the reference, through whole cribs."""

from pathlib import Path

import pytest

from integration.builtin.crew.crews import ClaudePlayed, Crew, agent
from toolcrib import Crib, Settings
from toolcrib.base.settings import Environment
from toolcrib.model.errors import NotFound
from toolcrib.model.principals import Principal

pytestmark = pytest.mark.anyio

PRIVILEGED = {"crib_grant_credits", "crib_credit_config"}
BLOCKED = {"crib_send_message", "crib_grant_credits", "crib_credit_config", "crib_ask_owner"}
"""Of the eight that schedules do not have, those that need nothing beside the crib."""
ALL_BLOCKED = BLOCKED | {
    "crib_github_fork_repo", "crib_github_create_pr", "crib_github_create_issue", "crib_github_comment_on_pr",
}  # fmt: skip


def seen(crew: Crew, who: Principal) -> set[str]:
    return {each.ref.tool for each in crew.crib.gate.listing(who).tools if each.ref.server == "crew"}


async def test_a_default_agent_has_all_but_the_privileged_tools(crew: Crew) -> None:
    everything = seen(crew, crew.crib.owner("web"))
    assert everything >= BLOCKED | PRIVILEGED
    assert seen(crew, (await crew.session("cook")).principal) == everything - PRIVILEGED


async def test_explicit_permissions_are_all_an_agent_has_privileged_ones_too(crew: Crew) -> None:
    granted = ["crew/crib_send_message", "crew/crib_grant_credits"]
    await crew.crib.zoo.create(agent("purser", permissions=granted), by="test")
    assert seen(crew, (await crew.session("purser")).principal) == {"crib_send_message", "crib_grant_credits"}


async def test_a_scheduled_session_lacks_the_blocked_tools_whatever_was_granted(crew: Crew) -> None:
    await crew.crib.zoo.create(agent("purser", permissions=["crew/*"]), by="test")
    everything = seen(crew, crew.crib.owner("web"))
    for name, expected in (("purser", everything - BLOCKED), ("cook", everything - BLOCKED - PRIVILEGED)):
        session = await crew.session(name, source="scheduler")
        assert seen(crew, session.principal) == expected
        resumed = await crew.crib.sessions.fork(session.id)
        child = await crew.session("purser", source="agent", creator=session.principal)
        assert seen(crew, resumed.principal) == expected
        assert not seen(crew, child.principal) & BLOCKED
        for tool in sorted(BLOCKED):
            with pytest.raises(NotFound):
                await crew.use(tool, session.principal)


async def test_a_scheduled_session_has_none_of_the_eight_where_all_of_them_are_there(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", default_cwd=tmp_path, github_token="ghp_x")
    async with Crib(settings, environment=Environment({"HOME": str(tmp_path)})) as crib:
        opened = Crew(crib, ClaudePlayed())
        await crib.zoo.create(agent("purser", permissions=["crew/*"]), by="test")
        everything = seen(opened, crib.owner("web"))
        assert everything >= ALL_BLOCKED
        session = await opened.session("purser", source="scheduler")
        assert seen(opened, session.principal) == everything - ALL_BLOCKED


async def test_a_session_of_the_console_has_everything(crew: Crew) -> None:
    session = await crew.session("cook", source="web")
    assert seen(crew, session.principal) == seen(crew, crew.crib.owner("web"))


async def test_why_names_what_a_missing_tool_lacks(crew: Crew) -> None:
    explained = await crew.crib.why("crew/crib_github_star_repo", principal=crew.crib.owner("cli"))
    assert explained.verdict == "unknown"
    assert "It needs a GitHub token" in explained.decided_by.reason
