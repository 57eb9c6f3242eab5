"""Schedules over HTTP: made, read, changed, paused, run, removed; every change on record, nothing for anybody else."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from integration.web.crib import Running
from integration.web.talks import BOUND, Talk, talking
from toolcrib.model.json import Json, JsonObject

pytestmark = pytest.mark.anyio

DAILY: JsonObject = {"agentId": "reviewer", "prompt": "[[script:hello]]", "cron": "0 9 * * 1-5"}
PATH = "/api/schedules"


@pytest.fixture
async def talk(running: Running, tmp_path: Path) -> AsyncGenerator[Talk]:
    """A crib whose sessions play scripts, also those that name no runtime."""
    cwd = tmp_path / "project"
    cwd.mkdir()
    async with talking(running, cwd) as talk:
        talk.runner.name = "claude"
        running.holding.crib.runners.add(talk.runner)
        yield talk


async def made(talk: Talk, **fields: Json) -> JsonObject:
    return await talk.ask("POST", PATH, {**DAILY, "cwd": str(talk.cwd), **fields}, 201)


async def ended(talk: Talk, id: str) -> JsonObject:
    """The newest run once it is over."""
    with anyio.fail_after(BOUND):
        while True:
            runs = await talk.ask("GET", f"{PATH}/{id}/history")
            if runs and runs[0]["state"] != "running":
                return runs[0]
            await anyio.sleep(0.02)


async def test_a_schedule_says_when_in_words_and_the_next_three_moments(talk: Talk) -> None:
    schedule = await made(talk, timezone="Europe/Berlin", name="Morning", limits={"seconds": 60}, retries=2)
    assert schedule["words"] == "At 09:00 on Monday through Friday (Europe/Berlin)"
    assert len(schedule["next"]) == 3
    assert schedule["next"] == sorted(schedule["next"])
    assert schedule["next"][0] == schedule["nextAt"]
    assert (schedule["cron"], schedule["timezone"], schedule["mode"]) == ("0 9 * * 1-5", "Europe/Berlin", "plan")
    assert (schedule["limits"], schedule["retries"], schedule["overlap"]) == ({"seconds": 60}, 2, "skip")
    assert schedule["readiness"] == {"ready": True, "problems": []}
    (listed,) = await talk.ask("GET", PATH)
    assert listed == {key: value for key, value in schedule.items() if key != "readiness"}


async def test_an_interval_and_a_moment_are_other_ways_to_say_when(talk: Talk) -> None:
    hourly = await made(talk, cron=None, everySeconds=7200)
    assert (hourly["words"], len(hourly["next"])) == ("Every 2 hours", 3)
    once = await made(talk, cron=None, at="2099-01-01T09:00:00+01:00")
    assert once["next"] == ["2099-01-01T08:00:00+00:00"]


@pytest.mark.parametrize(
    ("fields", "code", "status"),
    [
        ({"cron": "61 * * * *"}, "schedule.cadence", 422),
        ({"cron": None}, "schedule.cadence", 422),
        ({"everySeconds": 60}, "schedule.cadence", 422),
        ({"timezone": "Mars/Olympus"}, "schedule.cadence", 422),
        ({"cron": None, "at": "2020-01-01T09:00:00Z"}, "schedule.cadence", 422),
        ({"cron": None, "at": "2099-01-01T09:00:00"}, "schedule.cadence", 422),
        ({"agentId": "nobody"}, "agent.unknown", 404),
        ({"cwd": "/nowhere/at/all"}, "session.cwd", 422),
        ({"cwd": "relative"}, "request.invalid", 422),
        ({"prompt": "  "}, "request.invalid", 422),
        ({"overlap": "both"}, "request.invalid", 422),
        ({"retries": 99}, "request.invalid", 422),
        ({"surprise": 1}, "request.invalid", 422),
    ],
)
async def test_what_cannot_be_a_schedule_is_refused(talk: Talk, fields: JsonObject, code: str, status: int) -> None:
    problem = await talk.ask("POST", PATH, {**DAILY, "cwd": str(talk.cwd), **fields}, status)
    assert problem["code"] == code
    assert await talk.ask("GET", PATH) == []


async def test_what_would_keep_it_from_running_is_told_before_it_runs(talk: Talk) -> None:
    schedule = await made(talk, tools=["nowhere/tool"])
    assert schedule["readiness"]["ready"] is False
    (problem,) = (await talk.ask("GET", f"{PATH}/{schedule['id']}/readiness"))["problems"]
    assert problem["code"] == "schedule.tool"


async def test_a_patch_changes_what_it_names_and_a_put_everything_but_its_history(talk: Talk) -> None:
    schedule = await made(talk, name="Morning", tools=["toolcrib/ping"], model="m1")
    path = f"{PATH}/{schedule['id']}"
    changed = await talk.ask("PATCH", path, {"timezone": "Europe/Berlin", "tools": [], "model": None})
    assert (changed["name"], changed["cron"], changed["timezone"]) == ("Morning", "0 9 * * 1-5", "Europe/Berlin")
    assert changed["tools"] == []
    assert "model" not in changed
    assert (await talk.ask("PATCH", path, {"everySeconds": 3600}))["words"] == "Every hour"
    await talk.ask("POST", f"{path}/run", status=202)
    await ended(talk, schedule["id"])
    again = await talk.ask("PUT", path, {**DAILY, "cwd": str(talk.cwd), "prompt": "Another."})
    assert (again["name"], again["id"]) == ("Another.", schedule["id"])
    assert again["createdAt"] == schedule["createdAt"]
    assert again["lastRun"]["state"] == "completed"


async def test_a_run_now_is_a_session_of_the_scheduler_and_is_in_the_history(talk: Talk) -> None:
    schedule = await made(talk)
    begun = await talk.ask("POST", f"{PATH}/{schedule['id']}/run", status=202)
    run = await ended(talk, schedule["id"])
    assert (run["state"], run["dueAt"], run["attempt"]) == ("completed", begun["dueAt"], 1)
    session = await talk.ask("GET", f"/api/sessions/{run['sessionId']}")
    assert (session["source"], session["agentId"]) == ("scheduler", "reviewer")
    (listed,) = await talk.ask("GET", PATH)
    assert listed["lastRun"] == run


async def test_a_paused_schedule_has_no_next_moment_until_it_is_resumed(talk: Talk) -> None:
    path = f"{PATH}/{(await made(talk))['id']}"
    paused = await talk.ask("POST", f"{path}/pause")
    assert (paused["paused"], paused["next"]) == (True, [])
    resumed = await talk.ask("POST", f"{path}/resume")
    assert (resumed["paused"], len(resumed["next"])) == (False, 3)


async def test_a_schedule_that_is_gone_is_gone_on_every_route(talk: Talk) -> None:
    path = f"{PATH}/{(await made(talk))['id']}"
    assert await talk.ask("DELETE", path) == {"id": path.rpartition("/")[2]}
    for method, tail, body in [
        ("GET", "", None), ("PUT", "", {**DAILY, "cwd": str(talk.cwd)}), ("PATCH", "", {"name": "x"}),
        ("DELETE", "", None), ("POST", "/run", None), ("POST", "/pause", None), ("POST", "/resume", None),
        ("GET", "/history", None), ("GET", "/readiness", None),
    ]:  # fmt: skip
        problem = await talk.ask(method, path + tail, body, 404)
        assert problem["code"] == "schedule.unknown", (method, tail)


async def test_every_change_is_on_record_and_no_token_makes_one(talk: Talk) -> None:
    path = f"{PATH}/{(await made(talk))['id']}"
    await talk.ask("PATCH", path, {"name": "x"})
    await talk.ask("POST", f"{path}/pause")
    await talk.ask("DELETE", path)
    records = await talk.ask("GET", "/api/audit?limit=100")
    kinds = [each["tool"] for each in records if each["phase"] == "outcome"]
    assert {"schedules.create", "schedules.change", "schedules.pause", "schedules.remove"} <= set(kinds)
    token = await talk.ask("POST", "/api/tokens", {"name": "t", "source": "api"}, 201)
    answer = await talk.client.get(PATH, headers={"authorization": f"Bearer {token['secret']}"})
    assert answer.status_code in (403, 404)
