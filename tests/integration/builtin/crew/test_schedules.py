"""Agents schedule themselves, and what they schedule never has more than they had; jobs are the same thing."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from integration.builtin.crew.crews import SOON, Crew, agent
from toolcrib.builtin.scheduling import Draft, Scheduling
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef
from toolcrib.store.sessions import SessionFilter

pytestmark = pytest.mark.anyio

DAILY: dict[str, Json] = {
    "action": "create", "name": "Watch", "prompt": "Look out. [[script:hello]]", "cron": "0 9 * * *",
}  # fmt: skip
SOON_AFTER = (datetime.now(UTC) + timedelta(days=1)).isoformat()


async def manage(crew: Crew, who: Principal, **arguments: Json) -> Any:
    return await crew.ok("crib_manage_schedule", who, **arguments)


async def refused(crew: Crew, who: Principal, **arguments: Json) -> str:
    return await crew.wrong("crib_manage_schedule", who, **arguments)


async def test_an_agent_schedules_itself_and_answers_for_it(crew: Crew) -> None:
    cook = (await crew.session("cook")).principal
    made = (await manage(crew, cook, **DAILY, timezone="Europe/Berlin", max_minutes=5))["schedule"]
    assert (made["agentId"], made["createdBy"], made["cwd"]) == ("cook", "cook", cook.cwd)
    assert made["creator"] == cook.to_json()
    assert made["limits"] == {"seconds": 300.0}
    assert made["when"] == "At 09:00 every day (Europe/Berlin)"
    assert len(made["nextRuns"]) == 3
    assert made["readiness"] == {"ready": True, "problems": []}
    kept = await crew.crib.schedules.get(made["id"])
    assert kept.creator == cook


async def test_a_schedule_is_changed_paused_resumed_looked_at_and_deleted(crew: Crew) -> None:
    cook = (await crew.session("cook")).principal
    id = (await manage(crew, cook, **DAILY))["schedule"]["id"]
    changed = (await manage(crew, cook, action="update", id=id, every_minutes=30, tools=["crew/nothing"]))["schedule"]
    assert (changed["everySeconds"], changed["name"], changed["prompt"]) == (1800, "Watch", DAILY["prompt"])
    assert changed["readiness"]["problems"][0]["code"] == "schedule.tool"
    paused = (await manage(crew, cook, action="pause", id=id))["schedule"]
    assert (paused["paused"], paused["reason"], paused["nextRuns"]) == (True, "Paused by cook.", [])
    assert (await manage(crew, cook, action="resume", id=id))["schedule"]["paused"] is False
    assert (await manage(crew, cook, action="get", id=id))["schedule"]["id"] == id
    assert [each["id"] for each in (await manage(crew, cook, action="list"))["schedules"]] == [id]
    assert (await manage(crew, cook, action="history", id=id))["runs"] == []
    assert await manage(crew, cook, action="delete", id=id) == {"deleted": id}
    assert "no schedule" in await refused(crew, cook, action="get", id=id)


async def test_a_run_is_in_the_history_with_its_session_and_its_creator(crew: Crew) -> None:
    cook = (await crew.session("cook")).principal
    id = (await manage(crew, cook, **DAILY))["schedule"]["id"]
    await crew.crib.schedules.run_now(id)
    session = await crew.crib.sessions.get((await _completed(crew, cook, id))["sessionId"])
    assert (session.source, session.agent, session.creator) == ("scheduler", "cook", cook)
    assert crew.crib.gate.decision(session.principal, ToolRef("crew", "crib_send_message")).verdict == "hidden"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"cron": "0 9 * * *"}, "Nothing says what is to be done"),
        ({"prompt": "x"}, "Nothing says when"),
        ({"prompt": " ", "cron": "0 9 * * *"}, "1 to 100000"),
        ({"prompt": "x", "cron": "61 * * * *"}, "not a cron expression"),
        ({"prompt": "x", "cron": "* * * *"}, "five fields"),
        ({"prompt": "x", "cron": "0 9 * * *", "timezone": "Atlantis"}, "not a time zone"),
        ({"prompt": "x", "at": "soon"}, "not a date and time"),
        ({"prompt": "x", "at": "2001-01-01T00:00:00+00:00"}, "is in the past"),
        ({"prompt": "x", "at": "2101-01-01T00:00:00"}, "offset from UTC"),
        ({"prompt": "x", "cron": "0 9 * * *", "every_minutes": 5}, "exactly one"),
        ({"prompt": "x", "cron": "0 9 * * *", "agent": "mate"}, "may schedule only itself"),
        ({"prompt": "x", "every_minutes": 0}, "every_minutes"),
    ],
)
async def test_what_cannot_be_scheduled_is_refused_and_nothing_is_kept(
    crew: Crew, arguments: dict[str, Json], words: str
) -> None:
    cook = (await crew.session("cook")).principal
    assert words in await refused(crew, cook, action="create", **arguments)
    assert await crew.crib.schedules.list() == []


async def test_an_agent_changes_what_it_made_and_nothing_else(crew: Crew) -> None:
    cook, mate = [(await crew.session(agent)).principal for agent in ("cook", "mate")]
    owner = crew.crib.owner("cli")
    theirs = (await manage(crew, mate, **DAILY))["schedule"]["id"]
    owners = (await manage(crew, owner, **DAILY, agent="cook"))["schedule"]
    assert "creator" not in owners, "a person answers for nobody else"
    seen = (await manage(crew, cook, action="list"))["schedules"]
    assert [each["id"] for each in seen] == [owners["id"]], "it sees what runs it, not what others made"
    assert "no schedule" in await refused(crew, cook, action="delete", id=theirs)
    for action in ("update", "pause", "resume", "delete"):
        assert "not created by cook" in await refused(crew, cook, action=action, id=owners["id"])
    assert len((await manage(crew, owner, action="list"))["schedules"]) == 2
    await manage(crew, owner, action="delete", id=theirs)


async def test_what_a_person_paused_an_agent_does_not_resume(crew: Crew) -> None:
    cook, owner = (await crew.session("cook")).principal, crew.crib.owner("cli")
    id = (await manage(crew, cook, **DAILY))["schedule"]["id"]
    await manage(crew, owner, action="pause", id=id)
    await manage(crew, cook, action="pause", id=id)
    assert "not paused by cook" in await refused(crew, cook, action="resume", id=id)
    await manage(crew, owner, action="resume", id=id)
    await manage(crew, cook, action="pause", id=id)
    await manage(crew, cook, action="resume", id=id)


async def test_who_changes_a_schedule_answers_for_it_from_then_on(crew: Crew) -> None:
    rich = replace((await crew.session("cook")).principal, source="web")
    poor = (await crew.session("cook", mode="plan")).principal
    id = (await manage(crew, rich, **DAILY))["schedule"]["id"]
    crib = crew.crib
    scheduling = Scheduling(crib.schedules, crib.permissions.has_agent, crib.principals.is_person, str)
    await scheduling.change(poor, id, Draft(prompt="Do something else."))
    assert (await crew.crib.schedules.get(id)).creator == poor
    await manage(crew, crew.crib.owner("cli"), action="update", id=id, name="Renamed")
    assert (await crew.crib.schedules.get(id)).creator == poor, "a person gives it no more by that"


async def test_an_agent_has_twenty_schedules_and_makes_none_from_too_deep(crew: Crew) -> None:
    cook = (await crew.session("cook")).principal
    for _ in range(20):
        await manage(crew, cook, **DAILY)
    assert "has 20 schedules" in await refused(crew, cook, **DAILY)
    deep = replace(cook, agent="mate", creator=replace(cook, creator=replace(cook, creator=cook)))
    assert "was delegated 3 times" in await refused(crew, deep, **DAILY)


async def test_jobs_are_schedules_made_by_a_tool(crew: Crew) -> None:
    cook, mate = [(await crew.session(agent)).principal for agent in ("cook", "mate")]
    made = await _toolcrib(crew, "create_job", cook, prompt="Stir.", at=SOON_AFTER)
    assert made["at"] == SOON_AFTER
    assert made["when"].startswith("Once, at ")
    assert made["creator"] == cook.to_json()
    assert [job["id"] for job in (await _toolcrib(crew, "list_jobs", cook))["jobs"]] == [made["id"]]
    assert (await _toolcrib(crew, "list_jobs", mate))["jobs"] == []
    assert (await manage(crew, cook, action="get", id=made["id"]))["schedule"]["id"] == made["id"]
    wrong = await crew.crib.call("toolcrib/delete_job", {"id": made["id"]}, principal=mate)
    assert wrong.is_error
    assert await _toolcrib(crew, "delete_job", cook, id=made["id"]) == {"deleted": made["id"]}


async def test_a_job_never_has_more_than_who_made_it(crew: Crew) -> None:
    grant = ToolRef("crew", "crib_grant_credits")
    await crew.crib.zoo.create(agent("purser", permissions=["crew/*", "toolcrib/*"]), by="test")
    planning = (await crew.session("purser", mode="acceptEdits")).principal
    bound = replace(planning, creator=(await crew.session("cook")).principal)
    made = await _toolcrib(crew, "create_job", bound, prompt="[[script:hello]]", at=SOON_AFTER)
    await crew.crib.schedules.run_now(made["id"])
    found = await crew.until(
        lambda: next((each for each in crew.crib.sessions.active() if each.source == "scheduler"), None)
    )
    assert crew.crib.gate.decision(found.principal, grant).verdict == "hidden"
    assert found.creator == bound
    assert await crew.crib.sessions.list(SessionFilter(agent="purser"))


async def _completed(crew: Crew, who: Principal, id: str) -> JsonObject:
    """The newest run of a schedule, once it has come to its end."""
    with anyio.fail_after(SOON):
        async for _ in crew.crib.feed.follow(0):
            runs: list[JsonObject] = (await manage(crew, who, action="history", id=id))["runs"]
            if runs and runs[0]["state"] == "completed":
                return runs[0]
    raise AssertionError("The feed has ended.")


async def _toolcrib(crew: Crew, tool: str, who: Principal, **arguments: Json) -> Any:
    result = await crew.crib.call(f"toolcrib/{tool}", arguments, principal=who)
    assert not result.is_error, result.content
    return result.structured_content
