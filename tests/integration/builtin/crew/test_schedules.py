"""Schedules made by agents: they never have more rights than their creator; jobs are schedules too."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from integration.builtin.crew.crews import TIMEOUT, Crew, agent_input
from toolcrib.builtin.scheduling import Draft, Scheduling
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef
from toolcrib.store.sessions import SessionFilter

pytestmark = pytest.mark.anyio

DAILY: dict[str, Json] = {
    "action": "create", "name": "Watch", "prompt": "Look out. [[script:hello]]", "cron": "0 9 * * *",
}  # fmt: skip
TOMORROW = (datetime.now(UTC) + timedelta(days=1)).isoformat()


async def manage(crew: Crew, principal: Principal, **arguments: Json) -> Any:
    return await crew.result_of("crib_manage_schedule", principal, **arguments)


async def refused(crew: Crew, principal: Principal, **arguments: Json) -> str:
    return await crew.error_of("crib_manage_schedule", principal, **arguments)


async def test_agent_schedules_itself_and_is_the_creator(crew: Crew) -> None:
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


async def test_schedule_is_changed_paused_resumed_shown_and_deleted(crew: Crew) -> None:
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


async def test_run_is_in_the_history_with_its_session_and_creator(crew: Crew) -> None:
    cook = (await crew.session("cook")).principal
    id = (await manage(crew, cook, **DAILY))["schedule"]["id"]
    await crew.crib.schedules.run_now(id)
    session = await crew.crib.sessions.get((await wait_for_completed_run(crew, cook, id))["sessionId"])
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
async def test_invalid_schedule_is_refused_and_not_stored(crew: Crew, arguments: dict[str, Json], words: str) -> None:
    cook = (await crew.session("cook")).principal
    assert words in await refused(crew, cook, action="create", **arguments)
    assert await crew.crib.schedules.list() == []


async def test_agent_changes_only_the_schedules_it_created(crew: Crew) -> None:
    cook, mate = [(await crew.session(agent)).principal for agent in ("cook", "mate")]
    owner = crew.crib.owner("cli")
    of_mate = (await manage(crew, mate, **DAILY))["schedule"]["id"]
    of_owner = (await manage(crew, owner, **DAILY, agent="cook"))["schedule"]
    assert "creator" not in of_owner, "a person is no creator"
    listed = (await manage(crew, cook, action="list"))["schedules"]
    assert [each["id"] for each in listed] == [of_owner["id"]], "an agent sees the schedules that run it"
    assert "no schedule" in await refused(crew, cook, action="delete", id=of_mate)
    for action in ("update", "pause", "resume", "delete"):
        assert "not created by cook" in await refused(crew, cook, action=action, id=of_owner["id"])
    assert len((await manage(crew, owner, action="list"))["schedules"]) == 2
    await manage(crew, owner, action="delete", id=of_mate)


async def test_agent_cannot_resume_a_schedule_paused_by_a_person(crew: Crew) -> None:
    cook, owner = (await crew.session("cook")).principal, crew.crib.owner("cli")
    id = (await manage(crew, cook, **DAILY))["schedule"]["id"]
    await manage(crew, owner, action="pause", id=id)
    await manage(crew, cook, action="pause", id=id)
    assert "not paused by cook" in await refused(crew, cook, action="resume", id=id)
    await manage(crew, owner, action="resume", id=id)
    await manage(crew, cook, action="pause", id=id)
    await manage(crew, cook, action="resume", id=id)


async def test_agent_that_changes_a_schedule_becomes_its_creator(crew: Crew) -> None:
    unrestricted = replace((await crew.session("cook")).principal, source="web")
    planning = (await crew.session("cook", mode="plan")).principal
    id = (await manage(crew, unrestricted, **DAILY))["schedule"]["id"]
    crib = crew.crib
    scheduling = Scheduling(crib.schedules, crib.permissions.has_agent, crib.principals.is_person, str)
    await scheduling.change(planning, id, Draft(prompt="Do something else."))
    assert (await crew.crib.schedules.get(id)).creator == planning
    await manage(crew, crew.crib.owner("cli"), action="update", id=id, name="Renamed")
    assert (await crew.crib.schedules.get(id)).creator == planning, "a change by a person keeps the creator"


async def test_agent_has_at_most_twenty_schedules_and_limited_delegation(crew: Crew) -> None:
    cook = (await crew.session("cook")).principal
    for _ in range(20):
        await manage(crew, cook, **DAILY)
    assert "has 20 schedules" in await refused(crew, cook, **DAILY)
    deep = replace(cook, agent="mate", creator=replace(cook, creator=replace(cook, creator=cook)))
    assert "was delegated 3 times" in await refused(crew, deep, **DAILY)


async def test_jobs_are_schedules(crew: Crew) -> None:
    cook, mate = [(await crew.session(agent)).principal for agent in ("cook", "mate")]
    made = await call_toolcrib(crew, "create_job", cook, prompt="Stir.", at=TOMORROW)
    assert made["at"] == TOMORROW
    assert made["when"].startswith("Once, at ")
    assert made["creator"] == cook.to_json()
    assert [job["id"] for job in (await call_toolcrib(crew, "list_jobs", cook))["jobs"]] == [made["id"]]
    assert (await call_toolcrib(crew, "list_jobs", mate))["jobs"] == []
    assert (await manage(crew, cook, action="get", id=made["id"]))["schedule"]["id"] == made["id"]
    wrong = await crew.crib.call("toolcrib/delete_job", {"id": made["id"]}, principal=mate)
    assert wrong.is_error
    assert await call_toolcrib(crew, "delete_job", cook, id=made["id"]) == {"deleted": made["id"]}


async def test_job_has_no_tool_that_its_creator_lacks(crew: Crew) -> None:
    grant = ToolRef("crew", "crib_grant_credits")
    await crew.crib.zoo.create(agent_input("purser", permissions=["crew/*", "toolcrib/*"]), by="test")
    planning = (await crew.session("purser", mode="acceptEdits")).principal
    bound = replace(planning, creator=(await crew.session("cook")).principal)
    made = await call_toolcrib(crew, "create_job", bound, prompt="[[script:hello]]", at=TOMORROW)
    await crew.crib.schedules.run_now(made["id"])
    found = await crew.until(
        lambda: next((each for each in crew.crib.sessions.active() if each.source == "scheduler"), None)
    )
    assert crew.crib.gate.decision(found.principal, grant).verdict == "hidden"
    assert found.creator == bound
    assert await crew.crib.sessions.list(SessionFilter(agent="purser"))


async def wait_for_completed_run(crew: Crew, principal: Principal, id: str) -> JsonObject:
    """Return the newest run of a schedule once it is completed."""
    with anyio.fail_after(TIMEOUT):
        async for _ in crew.crib.feed.follow(0):
            runs: list[JsonObject] = (await manage(crew, principal, action="history", id=id))["runs"]
            if runs and runs[0]["state"] == "completed":
                return runs[0]
    raise AssertionError("The feed has ended.")


async def call_toolcrib(crew: Crew, tool: str, principal: Principal, **arguments: Json) -> Any:
    result = await crew.crib.call(f"toolcrib/{tool}", arguments, principal=principal)
    assert not result.is_error, result.content
    return result.structured_content
