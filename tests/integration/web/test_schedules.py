"""Schedules over HTTP: created, changed, paused, run and deleted, with every change audited."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from integration.web.crib import Running
from integration.web.session_client import BOUND, SessionClient, open_session_client
from toolcrib.model.json import Json, JsonObject

pytestmark = pytest.mark.anyio

DAILY: JsonObject = {"agentId": "reviewer", "prompt": "[[script:hello]]", "cron": "0 9 * * 1-5"}
PATH = "/api/schedules"


@pytest.fixture
async def sessions(running: Running, tmp_path: Path) -> AsyncGenerator[SessionClient]:
    """A crib whose sessions play scripts by default."""
    cwd = tmp_path / "project"
    cwd.mkdir()
    async with open_session_client(running, cwd) as sessions:
        sessions.runner.name = "claude"
        running.holding.crib.runners.add(sessions.runner)
        yield sessions


async def create(sessions: SessionClient, **fields: Json) -> JsonObject:
    return await sessions.request("POST", PATH, {**DAILY, "cwd": str(sessions.cwd), **fields}, 201)


async def ended_run(sessions: SessionClient, id: str) -> JsonObject:
    """Return the newest run, once it has ended."""
    with anyio.fail_after(BOUND):
        while True:
            runs = await sessions.request("GET", f"{PATH}/{id}/history")
            if runs and runs[0]["state"] != "running":
                return runs[0]
            await anyio.sleep(0.02)


async def test_schedule_lists_its_cadence_in_words_and_the_next_runs(sessions: SessionClient) -> None:
    schedule = await create(sessions, timezone="Europe/Berlin", name="Morning", limits={"seconds": 60}, retries=2)
    assert schedule["words"] == "At 09:00 on Monday through Friday (Europe/Berlin)"
    assert len(schedule["next"]) == 3
    assert schedule["next"] == sorted(schedule["next"])
    assert schedule["next"][0] == schedule["nextAt"]
    assert (schedule["cron"], schedule["timezone"], schedule["mode"]) == ("0 9 * * 1-5", "Europe/Berlin", "plan")
    assert (schedule["limits"], schedule["retries"], schedule["overlap"]) == ({"seconds": 60}, 2, "skip")
    assert schedule["readiness"] == {"ready": True, "problems": []}
    (listed,) = await sessions.request("GET", PATH)
    assert listed == {key: value for key, value in schedule.items() if key != "readiness"}


async def test_interval_and_date_are_other_cadences(sessions: SessionClient) -> None:
    hourly = await create(sessions, cron=None, everySeconds=7200)
    assert (hourly["words"], len(hourly["next"])) == ("Every 2 hours", 3)
    once = await create(sessions, cron=None, at="2099-01-01T09:00:00+01:00")
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
        ({"agentId": "missing"}, "agent.unknown", 404),
        ({"cwd": "/nowhere/at/all"}, "session.cwd", 422),
        ({"cwd": "relative"}, "request.invalid", 422),
        ({"prompt": "  "}, "request.invalid", 422),
        ({"overlap": "both"}, "request.invalid", 422),
        ({"retries": 99}, "request.invalid", 422),
        ({"surprise": 1}, "request.invalid", 422),
    ],
)
async def test_invalid_schedule_is_refused(sessions: SessionClient, fields: JsonObject, code: str, status: int) -> None:
    problem = await sessions.request("POST", PATH, {**DAILY, "cwd": str(sessions.cwd), **fields}, status)
    assert problem["code"] == code
    assert await sessions.request("GET", PATH) == []


async def test_schedule_reports_problems_before_its_first_run(sessions: SessionClient) -> None:
    schedule = await create(sessions, tools=["nowhere/tool"])
    assert schedule["readiness"]["ready"] is False
    (problem,) = (await sessions.request("GET", f"{PATH}/{schedule['id']}/readiness"))["problems"]
    assert problem["code"] == "schedule.tool"


async def test_patch_changes_named_fields_and_put_replaces_all_but_the_history(sessions: SessionClient) -> None:
    schedule = await create(sessions, name="Morning", tools=["toolcrib/ping"], model="m1")
    path = f"{PATH}/{schedule['id']}"
    changed = await sessions.request("PATCH", path, {"timezone": "Europe/Berlin", "tools": [], "model": None})
    assert (changed["name"], changed["cron"], changed["timezone"]) == ("Morning", "0 9 * * 1-5", "Europe/Berlin")
    assert changed["tools"] == []
    assert "model" not in changed
    assert (await sessions.request("PATCH", path, {"everySeconds": 3600}))["words"] == "Every hour"
    await sessions.request("POST", f"{path}/run", status=202)
    await ended_run(sessions, schedule["id"])
    again = await sessions.request("PUT", path, {**DAILY, "cwd": str(sessions.cwd), "prompt": "Another."})
    assert (again["name"], again["id"]) == ("Another.", schedule["id"])
    assert again["createdAt"] == schedule["createdAt"]
    assert again["lastRun"]["state"] == "completed"


async def test_immediate_run_is_a_scheduler_session_in_the_history(sessions: SessionClient) -> None:
    schedule = await create(sessions)
    begun = await sessions.request("POST", f"{PATH}/{schedule['id']}/run", status=202)
    run = await ended_run(sessions, schedule["id"])
    assert (run["state"], run["dueAt"], run["attempt"]) == ("completed", begun["dueAt"], 1)
    session = await sessions.request("GET", f"/api/sessions/{run['sessionId']}")
    assert (session["source"], session["agentId"]) == ("scheduler", "reviewer")
    (listed,) = await sessions.request("GET", PATH)
    assert listed["lastRun"] == run


async def test_paused_schedule_has_no_next_run_until_it_is_resumed(sessions: SessionClient) -> None:
    path = f"{PATH}/{(await create(sessions))['id']}"
    paused = await sessions.request("POST", f"{path}/pause")
    assert (paused["paused"], paused["next"]) == (True, [])
    resumed = await sessions.request("POST", f"{path}/resume")
    assert (resumed["paused"], len(resumed["next"])) == (False, 3)


async def test_deleted_schedule_is_unknown_on_every_route(sessions: SessionClient) -> None:
    path = f"{PATH}/{(await create(sessions))['id']}"
    assert await sessions.request("DELETE", path) == {"id": path.rpartition("/")[2]}
    for method, tail, body in [
        ("GET", "", None), ("PUT", "", {**DAILY, "cwd": str(sessions.cwd)}), ("PATCH", "", {"name": "x"}),
        ("DELETE", "", None), ("POST", "/run", None), ("POST", "/pause", None), ("POST", "/resume", None),
        ("GET", "/history", None), ("GET", "/readiness", None),
    ]:  # fmt: skip
        problem = await sessions.request(method, path + tail, body, 404)
        assert problem["code"] == "schedule.unknown", (method, tail)


async def test_every_change_is_audited_and_tokens_are_refused(sessions: SessionClient) -> None:
    path = f"{PATH}/{(await create(sessions))['id']}"
    await sessions.request("PATCH", path, {"name": "x"})
    await sessions.request("POST", f"{path}/pause")
    await sessions.request("DELETE", path)
    records = await sessions.request("GET", "/api/audit?limit=100")
    kinds = [each["tool"] for each in records if each["phase"] == "outcome"]
    assert {"schedules.create", "schedules.change", "schedules.pause", "schedules.remove"} <= set(kinds)
    token = await sessions.request("POST", "/api/tokens", {"name": "t", "source": "api"}, 201)
    answer = await sessions.client.get(PATH, headers={"authorization": f"Bearer {token['secret']}"})
    assert answer.status_code in (403, 404)
