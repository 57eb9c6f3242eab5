"""The audit log in the console: filters, export and verification."""

import json

import anyio
import pytest
from sqlalchemy import update

from integration.gate.audit.calls import call
from integration.web.console.console_client import ConsoleClient
from toolcrib.model.errors import Denied
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef
from toolcrib.store.schema import audit
from toolcrib.tools import ToolServer, tool

pytestmark = pytest.mark.anyio

HOSTILE = '<img src=x onerror=alert(1)><b hx-get="/x">\u202e'


@tool
def shout(text: str, password: str = "") -> str:
    """Say it loudly."""
    if text == "no":
        raise ValueError("too loud")
    return text.upper()


@pytest.fixture
async def busy(console: ConsoleClient) -> ConsoleClient:
    """A crib with three recorded calls."""
    crib = console.crib
    crib.register(ToolServer("lab", tools=[shout]))
    owner = crib.owner(source="cli")
    await crib.call("lab/shout", {"text": HOSTILE, "password": "hunter2"}, principal=owner)
    await crib.call("lab/shout", {"text": "no"}, principal=owner)
    await crib.call("toolcrib/ping", {}, principal=crib.as_agent("reviewer", "ide"))
    return console


async def test_empty_log_has_a_hint(console: ConsoleClient) -> None:
    assert "No calls yet." in (await console.page("/activity")).text


async def test_search_matches_arguments_and_an_intent_opens_its_outcome(busy: ConsoleClient) -> None:
    found = await busy.json("/activity", words="LOUD no")
    assert found["total"] == 0
    found = await busy.json("/activity", words="ONERROR shout")
    (row,) = found["calls"]
    assert (row["error"], found["total"], found["follows"]) == ("ok", 1, False)
    exported = await busy.client.get(found["exports"]["jsonl"])
    assert len(exported.text.splitlines()) == 2
    opened = await busy.page(f"/activity/{row['id'] - 1}")  # the intent of the call
    assert "outcome" in opened.one("pre", id="whole").text
    page = await busy.page("/activity", words="shout")
    assert page.one("input", id="words").attributes["value"] == "shout"
    assert "Searched the newest" in page.text


async def test_failed_calls_are_found_behind_many_newer_records(busy: ConsoleClient) -> None:
    async def succeed(number: int) -> None:
        record = call(busy.crib.audit, number)
        await record.intent()
        await record.outcome(is_error=False, duration_ms=1)

    async with anyio.create_task_group() as tasks:
        for number in range(501):
            tasks.start_soon(succeed, number)
    failed = await busy.json("/activity", error="error")
    assert (failed["total"], [each["tool"] for each in failed["calls"]]) == (1, ["lab/shout"])
    assert (await busy.json("/activity", error="ok"))["total"] == 503
    assert (await busy.page("/activity")).text.count("504 calls.") == 1


async def test_facets_count_and_filter_calls(busy: ConsoleClient) -> None:
    page = await busy.page("/activity")
    rows = page.one("ul", class_="activity").all("li", data_row="")
    assert [row.one("a").text for row in rows] == ["toolcrib/ping", "lab/shout", "lab/shout"]
    twin = await busy.json("/activity")
    counts = {facet["name"]: {each["value"]: each["count"] for each in facet["values"]} for facet in twin["facets"]}
    assert counts["server"] == {"lab": 2, "toolcrib": 1}
    assert counts["error"] == {"ok": 2, "error": 1}
    assert counts["agent"] == {"reviewer": 1}
    failed = await busy.json("/activity", tool="lab/shout", error="error")
    assert [call["error"] for call in failed["calls"]] == ["error"]
    assert [call["tool"] for call in (await busy.json("/activity", agent="reviewer"))["calls"]] == ["toolcrib/ping"]
    assert "No calls match" in (await busy.page("/activity", agent="missing")).text
    chosen = await busy.page("/activity", server="lab")
    assert chosen.one("a", aria_current="true").attributes["href"] == "/activity"


async def test_older_calls_are_paged_without_gap_or_repeat(busy: ConsoleClient) -> None:
    crib = busy.crib
    for number in range(60):
        await crib.call("lab/shout", {"text": str(number)}, principal=crib.owner(source="cli"))
    first = await busy.json("/activity")
    last = first["calls"][-1]["id"]
    assert first["older"] == f"/activity?after={last}"
    second = await busy.json("/activity", after=str(last))
    ids = [call["id"] for call in (*first["calls"], *second["calls"])]
    assert len(ids) == 63
    assert ids == sorted(set(ids), reverse=True)


async def test_total_counts_all_calls(busy: ConsoleClient) -> None:
    owner = busy.crib.owner(source="cli")
    for _ in range(600):
        await busy.crib.call("toolcrib/ping", {}, principal=owner)
    twin = await busy.json("/activity")
    assert (twin["total"], twin["counted"]) == (603, 603)
    counts = {facet["name"]: {each["value"]: each["count"] for each in facet["values"]} for facet in twin["facets"]}
    assert counts["server"] == {"toolcrib": 601, "lab": 2}
    assert counts["tool"] == {"toolcrib/ping": 601, "lab/shout": 2}
    assert (counts["error"], counts["agent"]) == ({"ok": 602, "error": 1}, {"reviewer": 1})
    assert "count the newest" not in (await busy.page("/activity")).text
    assert "603 calls." in (await busy.page("/activity")).text
    assert (await busy.json("/activity", server="toolcrib"))["total"] == 601


async def test_calls_are_filtered_by_time(busy: ConsoleClient) -> None:
    assert len((await busy.json("/activity", range="hour"))["calls"]) == 3
    past = {"from": "2020-01-01", "to": "2020-01-02"}
    assert (await busy.json("/activity", **past))["calls"] == []
    page = await busy.page("/activity", range="week", server="lab")
    assert page.one("a", aria_current="true", href="/activity?server=lab").text == "Last 7 days"
    assert "is not a date" in (await busy.page("/activity", status=422, to="soon")).text


async def test_filtered_records_are_exported_as_csv_and_jsonl(busy: ConsoleClient) -> None:
    lines = (await busy.client.get("/activity/export?format=csv&server=lab&phase=outcome")).text.splitlines()
    assert lines[0].startswith("id,at,phase,tool,decision,error")
    assert [line.split(",")[3:6] for line in lines[1:]] == [
        ["lab/shout", "allow", "error"],
        ["lab/shout", "allow", "ok"],
    ]
    exported = (await busy.client.get("/activity/export?format=jsonl&agent=reviewer")).text.splitlines()
    assert {json.loads(line)["tool"] for line in exported} == {"ping"}


async def test_open_page_is_updated_only_by_new_records(busy: ConsoleClient) -> None:
    newest = (await busy.json("/activity"))["newest"]
    headers = {"accept": "text/html", "hx-request": "true"}
    same = await busy.client.get("/activity", params={"seen": newest}, headers=headers)
    assert (same.status_code, same.text) == (204, "")
    await busy.crib.call("toolcrib/ping", {}, principal=busy.crib.owner(source="cli"))
    assert len((await busy.part("/activity", seen=str(newest))).all("li", data_row="")) == 4


async def test_record_masks_secrets_and_links_to_its_explanation(busy: ConsoleClient) -> None:
    oldest = (await busy.json("/activity"))["calls"][-1]["id"]
    page = await busy.page(f"/activity/{oldest}")
    arguments = page.one("section", aria_labelledby="with").one("pre").raw_text
    assert "onerror" in arguments
    assert "\\u{202e}" in arguments
    assert "hunter2" not in page.text
    assert page.one("a", href="/access?tool=lab%2Fshout&source=cli&mode=default")
    assert (await busy.json(f"/activity/{oldest}"))["whole"]["id"] == oldest
    await busy.page("/activity/99999", 404)


async def test_denied_call_of_a_session_links_to_session_and_agent(busy: ConsoleClient) -> None:
    principal = Principal("session", "s1", "scheduler", "default", "reviewer", "s1")
    with pytest.raises(Denied):
        await busy.crib.gate.call(principal, ToolRef("lab", "shout"), {"text": "x"}, door="session")
    (call,) = (await busy.json("/activity", session="s1"))["calls"]
    page = await busy.page(f"/activity/{call['id']}")
    assert page.one("a", href="/sessions/s1")
    assert page.one("a", href="/agents/reviewer")


async def test_log_is_verified_and_tampering_is_found(busy: ConsoleClient) -> None:
    assert "The log is intact." in (await busy.page("/activity/verify")).text
    assert (await busy.json("/activity/verify"))["ok"] is True
    await busy.crib.store.write(update(audit).where(audit.c.id == 2).values(tool="another"))
    found = await busy.part("/activity/verify")
    assert "tampered with" in found.text
    assert found.one("a", href="/activity/2")
