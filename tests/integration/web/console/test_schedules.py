"""Schedules in the console: cadence in words, every form, and runs."""

from pathlib import Path

import pytest

from integration.web.console.console_client import ConsoleClient
from toolcrib.model.sessions import NO_LIMITS, SessionLimits
from toolcrib.store.audit import Filters

pytestmark = pytest.mark.anyio

HOSTILE = '<img src=x onerror=alert(1)><b hx-get="/x">\u202e'
FORM = {"agent": "reviewer", "prompt": "Look at what is new.\r\nSay so.", "way": "cron", "cron": "0 9 * * 1-5"}


async def test_cadence_is_previewed_in_words(console: ConsoleClient) -> None:
    assert "No schedules yet." in (await console.page("/schedules")).text
    form = await console.page("/schedules/-/new")
    assert "Code Reviewer" in form.one("select", name="agent").text
    when = {"way": "cron", "cron": "0 9 * * 1-5", "timezone": "Europe/Berlin"}
    preview = await console.part("/schedules/-/when", **when)
    assert preview.one("strong").text.endswith("(Europe/Berlin)")
    assert len(preview.all("time")) == 3
    assert "must have five fields" in (await console.part("/schedules/-/when", way="cron", cron="often")).text
    assert "at least 60 seconds" in (await console.part("/schedules/-/when", way="every", every="0.5", unit="1")).text
    assert "is in the past" in (await console.part("/schedules/-/when", way="at", at="2001-01-01T09:00")).text
    twin = await console.json("/schedules/-/when", way="every", every="2", unit="60")
    assert (twin["words"], len(twin["next"])) == ("Every 2 hours", 3)


async def test_schedule_is_created_changed_paused_resumed_deleted_and_audited(
    console: ConsoleClient, tmp_path: Path
) -> None:
    page = await console.send(
        "/schedules", FORM | {"cwd": str(tmp_path), "tools": "toolcrib/ping", "maxSeconds": "300"}
    )
    assert page.one("h1").text == "Look at what is new."
    assert "No runs yet." in page.text
    (schedule,) = await console.crib.schedules.list()
    assert schedule.prompt == "Look at what is new.\nSay so."
    assert (schedule.cwd, schedule.limits.seconds, schedule.creator) == (str(tmp_path), 300.0, None)
    path = f"/schedules/{schedule.id}"
    changed = await console.send(path, FORM | {"way": "every", "every": "2", "unit": "1440", "name": HOSTILE})
    assert "Every 2 days" in changed.one("dl", class_="facts").text
    assert not changed.one("h1").children[1:]
    assert "paused" in (await console.send(f"{path}/pause", live=True)).one("dl", class_="facts").text
    assert "Paused" in (await console.page("/schedules")).one("li", data_row="").text
    assert "Pause" in (await console.send(f"{path}/resume")).text
    assert (await console.json(path))["schedule"]["next"]
    await console.page("/schedules/nothing", 404)
    await console.send(f"{path}/explode", {}, 404)
    assert "No schedules yet." in (await console.send(f"{path}/remove")).text
    records = await console.crib.audit.find(Filters(server="toolcrib", phase="outcome", door="console"))
    kinds = ["remove", "resume", "pause", "change", "create"]
    assert [record["tool"] for record in records] == [f"schedules.{kind}" for kind in kinds]


async def test_settings_of_a_schedule_are_saved_and_shown(console: ConsoleClient) -> None:
    fresh = (await console.json("/schedules/-/new"))["form"]
    assert (fresh["mode"], fresh["maxSeconds"], fresh["overlap"], fresh["missed"]) == ("", "1800", "skip", "once")
    more = {"mode": "plan", "model": "small", "overlap": "wait", "missed": "skip", "jitterSeconds": "90"}
    limits = {"retries": "2", "maxTurns": "7", "maxSeconds": "60", "maxCostUsd": "0.5"}
    await console.send("/schedules", FORM | more | limits)
    (kept,) = await console.crib.schedules.list()
    assert (kept.mode, kept.model, kept.overlap, kept.missed) == ("plan", "small", "wait", "skip")
    assert (kept.jitter_seconds, kept.retries, kept.limits) == (90, 2, SessionLimits(7, 0.5, 60.0))
    page = await console.page(f"/schedules/{kept.id}")
    assert page.one("select", name="overlap").one("option", value="wait").attributes["selected"] == ""
    await console.send(f"/schedules/{kept.id}/pause")
    await console.send(f"/schedules/{kept.id}", FORM | {"maxSeconds": ""})
    (after,) = await console.crib.schedules.list()
    assert (after.id, after.created_at, after.paused) == (kept.id, kept.created_at, True)
    assert (after.model, after.overlap, after.retries, after.limits) == (None, "skip", 0, NO_LIMITS)


async def test_missing_tool_is_shown_as_not_ready(console: ConsoleClient) -> None:
    page = await console.send("/schedules", FORM | {"tools": "github/list_issues"})
    assert "Not ready" in page.text
    assert page.one("div", class_="failure")
    assert "Not ready" in (await console.page("/schedules")).one("li", data_row="").text


async def test_immediate_run_is_listed_in_the_history(console: ConsoleClient) -> None:
    await console.send("/schedules", FORM | {"tools": "github/list_issues"})
    (schedule,) = await console.crib.schedules.list()
    await console.send(f"/schedules/{schedule.id}/run")
    page = await console.page(f"/schedules/{schedule.id}")
    assert len(page.one("ul", class_="runs").all("li", data_row="")) == 1


@pytest.mark.parametrize(
    ("wrong", "status", "message"),
    [
        ({"cron": "often"}, 422, "must have five fields"),
        ({"way": ""}, 422, "has no time"),
        ({"prompt": " "}, 422, "The prompt must have"),
        ({"agent": "missing"}, 404, "not found"),
        ({"cwd": "/nowhere/at/all"}, 422, "is not an absolute path of an existing directory"),
        ({"maxSeconds": "some"}, 422, "is not a number"),
        ({"retries": "11"}, 422, "from 0 to 10"),
        ({"jitterSeconds": "0.5"}, 422, "must be a whole number"),
        ({"maxCostUsd": "0"}, 422, "greater than 0"),
        ({"maxTurns": "nan"}, 422, "must be a whole number"),
        ({"way": "at", "at": "2001-01-01T09:00", "timezone": "Europe/Berlin"}, 422, "is in the past"),
        ({"way": "at", "at": "soon"}, 422, "is not a date and time"),
    ],
)
async def test_invalid_schedule_is_refused_with_its_reason(
    console: ConsoleClient, wrong: dict[str, str], status: int, message: str
) -> None:
    assert message in (await console.send("/schedules", FORM | wrong, status)).text
    assert await console.crib.schedules.list() == []
