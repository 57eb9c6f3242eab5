"""Budgets of agents: an exhausted budget stops turns and refuses calls with a clear error."""

import pytest

from integration.builtin.crew.crews import REPEAT_RESULT, Crew, agent_input, call_step, results, text_step, texts
from toolcrib.model.errors import Denied, NotFound
from toolcrib.model.principals import Principal
from toolcrib.model.sessions import SessionEvent
from toolcrib.store.audit import Filters

pytestmark = pytest.mark.anyio


@pytest.fixture
def owner(crew: Crew) -> Principal:
    """Return the owner in the console, who sees every tool."""
    return crew.crib.owner("web")


def ending(events: list[SessionEvent]) -> tuple[str | None, str]:
    """Return the error code of a turn, if any, and the reason of its end."""
    codes = [str(event.data["code"]) for event in events if event.kind == "error"]
    return (codes[-1] if codes else None), str(events[-1].data["reason"])


async def test_turn_is_charged_with_its_model_turns_and_calls(crew: Crew) -> None:
    crew.script("two", call_step("crib_list_agents"), call_step("crib_list_projects"), text_step("Done."))
    session = await crew.session("cook")
    await crew.turn(session.id, "[[script:two]]")
    found = await crew.result_of("crib_check_credits", session.principal)
    assert found["agentId"] == "cook"
    assert found["spent"] == {"turns": 3, "calls": 2, "usd": 0.0}
    assert found["exhausted"] == []
    (entry,) = found["history"]
    assert (entry["kind"], entry["sessionId"], entry["calls"]) == ("spent", session.id, 2)


async def test_exhausted_budget_stops_turns_until_credits_are_granted(crew: Crew, owner: Principal) -> None:
    await crew.result_of("crib_credit_config", owner, agent="cook", turns=1)
    session = await crew.session("cook")
    assert ending(await crew.turn(session.id, "[[script:hello]]")) == (None, "completed")
    events = await crew.turn(session.id, "[[script:hello]]")
    assert ending(events) == ("credits.exhausted", "limit")
    assert texts(events) == []
    assert "crib_grant_credits" in next(event.data["hint"] for event in events if event.kind == "error")

    granted = await crew.result_of("crib_grant_credits", owner, agent="cook", turns=5, reason="more wind")
    assert granted["left"] == {"turns": 5, "calls": None, "usd": None}
    assert ending(await crew.turn(session.id, "[[script:hello]]")) == (None, "completed")


async def test_call_beyond_the_budget_fails_and_is_recorded_as_refused(crew: Crew, owner: Principal) -> None:
    await crew.result_of("crib_credit_config", owner, calls=1)
    crew.script("two", call_step("crib_list_agents"), call_step("crib_list_projects"), REPEAT_RESULT)
    events = await crew.turn((await crew.session("cook")).id, "[[script:two]]")
    assert "captain" in results(events)[0]
    assert "Agent 'cook' has used up its budget of tool calls" in results(events)[1]
    assert ending(events) == ("credits.exhausted", "limit")
    records = await crew.crib.audit.find(Filters(tool="crib_list_projects"))
    assert [record["refused"] for record in records] == ["limit.reached"], "a refused call is recorded too"
    other = await crew.session("mate")
    assert ending(await crew.turn(other.id, "[[script:hello]]")) == (None, "completed"), "each agent has its own budget"


async def test_calls_of_the_runtimes_own_tools_count_against_the_budget(crew: Crew, owner: Principal) -> None:
    await crew.result_of("crib_credit_config", owner, agent="cook", calls=1)
    bash = {"blocks": [{"tool": "Bash", "input": {"command": "ls"}}]}
    crew.script("bash", bash, bash, text_step("Done."))
    events = await crew.turn((await crew.session("cook")).id, "[[script:bash]]")
    assert len(crew.runner.ran) == 1
    assert "used up its budget" in results(events)[1]


async def test_budgets_are_set_shown_and_removed(crew: Crew, owner: Principal) -> None:
    assert await crew.result_of("crib_credit_config", owner) == {"budgets": {}}
    await crew.result_of("crib_credit_config", owner, usd=2.5)
    found = await crew.result_of("crib_credit_config", owner, agent="cook", turns=3, calls=9)
    assert found["budgets"] == {
        "*": {"turns": None, "calls": None, "usd": 2.5},
        "cook": {"turns": 3, "calls": 9, "usd": None},
    }
    found = await crew.result_of("crib_credit_config", owner, agent="cook", unlimited=["turns"])
    assert found["budgets"]["cook"] == {"turns": None, "calls": 9, "usd": None}


async def test_credit_tools_reject_unknown_agents_and_empty_grants(crew: Crew, owner: Principal) -> None:
    for tool, arguments, words in (
        ("crib_check_credits", {}, "is not an agent"),
        ("crib_check_credits", {"agent": "unknown"}, "not found"),
        ("crib_grant_credits", {"agent": "unknown", "turns": 1}, "not found"),
        ("crib_grant_credits", {"agent": "cook"}, "The grant has no amount"),
        ("crib_credit_config", {"agent": "unknown", "turns": 1}, "not found"),
    ):
        assert words in await crew.error_of(tool, owner, **arguments)


async def test_granting_credits_needs_permission_and_excludes_the_agent_itself(crew: Crew) -> None:
    cook = (await crew.session("cook")).principal
    for tool in ("crib_grant_credits", "crib_credit_config"):
        with pytest.raises(NotFound):
            await crew.call(tool, cook, agent="mate")
        with pytest.raises(Denied):
            await crew.call(tool, crew.crib.owner("cli"), agent="mate")
    granted = ["crew/crib_grant_credits", "crew/crib_credit_config"]
    await crew.crib.zoo.create(agent_input("purser", permissions=granted), by="test")
    purser = (await crew.session("purser")).principal
    assert (await crew.result_of("crib_grant_credits", purser, agent="mate", usd=1.5))["granted"]["usd"] == 1.5
    error = await crew.error_of("crib_grant_credits", purser, agent="purser", usd=1.5)
    assert "cannot grant credits to itself" in error
    assert "Hint: Ask the owner" in error
    assert "its own budget" in await crew.error_of("crib_credit_config", purser, turns=100)
