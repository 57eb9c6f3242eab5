"""What waits for a person, answered in the console: bound to what was shown, and on record."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from integration.web.console.console_client import ConsoleClient
from toolcrib.gate.gate import CallOutcome
from toolcrib.model.approvals import Approval, ApprovalStatus
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import ToolRef
from toolcrib.store.audit import Filters
from toolcrib.tools import ToolServer, tool

pytestmark = pytest.mark.anyio

HIDDEN = "a\u202eb\u200d"


@tool
def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


@asynccontextmanager
async def waiting(console: ConsoleClient, arguments: JsonObject) -> AsyncGenerator[tuple[str, list[CallOutcome]]]:
    """A call that waits: the id of its question, and what became of it after the block."""
    crib = console.crib
    crib.register(ToolServer("lab", tools=[shout]))
    ended: list[CallOutcome] = []

    async def call() -> None:
        asker = crib.as_agent("builder", "api", mode="default")
        ended.append(await crib.gate.call(asker, ToolRef("lab", "shout"), arguments, door="api"))

    asked = anyio.Event()
    stop = crib.feed.listen(lambda event: asked.set() if event.kind == "approval_required" else None)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await asked.wait()
            stop()
            (approval,) = await crib.approvals.find(status="pending")
            yield approval.id, ended


async def test_a_call_is_approved_as_it_was_shown_although_it_holds_what_cannot_be_seen(console: ConsoleClient) -> None:
    async with waiting(console, {"text": HIDDEN}) as (id, ended):
        page = await console.page("/waiting")
        shown = page.one("textarea", name="arguments").raw_text
        assert "a\\u202eb\\u200d" in shown
        assert "a\\u{202e}b\\u{200d}" in page.text
        await console.send(f"/waiting/approvals/{id}", {"decision": "approve", "arguments": shown})
    assert [part["text"] for part in ended[0].result.content] == [HIDDEN.upper()]
    (record,) = await console.crib.audit.find(Filters(tool="approvals.answer", phase="outcome"))
    assert (record["door"], record["arguments"]) == ("console", {"id": id, "decision": "approve", "scope": "once"})


async def test_other_arguments_and_a_reason_reach_the_call_and_the_record(console: ConsoleClient) -> None:
    async with waiting(console, {"text": "rm"}) as (id, ended):
        answer = {"decision": "approve", "arguments": '{"text": "ls"}'}
        assert "valid JSON" in (await console.send(f"/waiting/approvals/{id}", answer | {"arguments": "{"}, 422)).text
        await console.send(f"/waiting/approvals/{id}", answer)
    assert "LS" in str(ended[0].result.content)
    records = await console.crib.audit.find(Filters(tool="approvals.answer", phase="outcome"))
    assert [record["arguments"]["arguments"] for record in records] == [{"text": "ls"}]


LONG = "x" * 12_841


async def test_card_shows_sizes_remarks_and_counted_blanks(console: ConsoleClient) -> None:
    text = "ls" + "\n" * 300 + "rm -rf ~" + " " * 4_000 + "\u00a0p\u0430ypal"
    async with waiting(console, {"text": text}) as (id, _):
        page = await console.page("/waiting")
        form = page.one("form", id=f"ask-{id}")
        assert "\\{300 line breaks}rm -rf ~\\{4000 spaces}\\u{a0}p" in form.text
        assert f"{len(text):,} characters" in form.text
        assert [each.text for each in form.all("p", class_="remark")] == [
            "Warning: /text: 1 hidden character",
            "Warning: /text: a run of 4001 blanks",
            "Warning: /text: letters of different scripts that look alike",
        ]
        assert "disabled" not in form.one("button", value="approve").attributes
        await console.send(f"/waiting/approvals/{id}", {"decision": "approve"})


async def test_long_argument_has_to_be_opened_before_it_is_approved(console: ConsoleClient) -> None:
    async with waiting(console, {"text": LONG}) as (id, ended):
        page = await console.page("/waiting")
        form = page.one("form", id=f"ask-{id}")
        part = form.one("details", data_part=form.all("details")[0].attributes["data-part"])
        assert "Show all 12,841 characters of text" in part.text
        for value in ("approve", "always"):
            assert "disabled" in form.one("button", value=value).attributes
            refused = await console.send(f"/waiting/approvals/{id}", {"decision": value}, 422)
            assert "is still collapsed" in refused.text
        answer = {"decision": "approve", "opened": part.attributes["data-part"]}
        await console.send(f"/waiting/approvals/{id}", answer)
    assert ended[0].result.content[0]["text"] == LONG.upper()


async def test_long_argument_that_is_replaced_need_not_be_opened(console: ConsoleClient) -> None:
    async with waiting(console, {"text": LONG}) as (id, ended):
        await console.send(f"/waiting/approvals/{id}", {"decision": "approve", "arguments": '{"text": "short"}'})
    assert ended[0].result.content[0]["text"] == "SHORT"


async def test_card_shows_the_exact_rule_before_it_is_agreed_to(console: ConsoleClient) -> None:
    async with waiting(console, {"text": "hi"}) as (id, _):
        page = await console.page("/waiting")
        exact = page.one("input", name="prefix-always", value="")
        assert "checked" in exact.attributes
        assert "Allow every call of lab/shout, with any arguments, for the owner of agent builder" in page.text
        await console.send(f"/waiting/approvals/{id}", {"decision": "always", "prefix-always": ""})
    (rule,) = console.crib.permissions.list()
    assert rule.principal is not None
    assert (rule.principal.agent, rule.principal.source) == ("builder", "api")


async def test_page_follows_the_events_since_before_it_read_its_content(
    console: ConsoleClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    crib, find, before = console.crib, console.crib.approvals.find, console.crib.feed.last

    async def find_and_change(status: ApprovalStatus | None = None) -> list[Approval]:
        found = await find(status=status)
        crib.feed.publish("config_changed", {})
        return found

    monkeypatch.setattr(crib.approvals, "find", find_and_change)
    page = await console.page("/waiting")
    assert (page.one("body").attributes["data-after"], crib.feed.last > before) == (str(before), True)
