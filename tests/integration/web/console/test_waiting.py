"""Pending approvals in the console: bound to the shown arguments, and audited."""

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
async def open_call(console: ConsoleClient, arguments: JsonObject) -> AsyncGenerator[tuple[str, list[CallOutcome]]]:
    """Keep a call pending; yield the approval's id and the outcome, which is set after the block."""
    crib = console.crib
    crib.register(ToolServer("lab", tools=[shout]))
    ended: list[CallOutcome] = []

    async def call() -> None:
        principal = crib.as_agent("builder", "api", mode="default")
        ended.append(await crib.gate.call(principal, ToolRef("lab", "shout"), arguments, door="api"))

    requested = anyio.Event()
    stop = crib.feed.listen(lambda event: requested.set() if event.kind == "approval_required" else None)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await requested.wait()
            stop()
            (approval,) = await crib.approvals.find(status="pending")
            yield approval.id, ended


async def test_call_with_hidden_characters_is_approved_as_shown(console: ConsoleClient) -> None:
    async with open_call(console, {"text": HIDDEN}) as (id, ended):
        page = await console.page("/waiting")
        shown = page.one("textarea", name="arguments").raw_text
        assert "a\\u202eb\\u200d" in shown
        assert "a\\u{202e}b\\u{200d}" in page.text
        await console.send(f"/waiting/approvals/{id}", {"decision": "approve", "arguments": shown})
    assert [part["text"] for part in ended[0].result.content] == [HIDDEN.upper()]
    (record,) = await console.crib.audit.find(Filters(tool="approvals.answer", phase="outcome"))
    assert (record["door"], record["arguments"]) == ("console", {"id": id, "decision": "approve", "scope": "once"})


async def test_edited_arguments_reach_the_call_and_the_audit(console: ConsoleClient) -> None:
    async with open_call(console, {"text": "rm"}) as (id, ended):
        answer = {"decision": "approve", "arguments": '{"text": "ls"}'}
        assert "valid JSON" in (await console.send(f"/waiting/approvals/{id}", answer | {"arguments": "{"}, 422)).text
        await console.send(f"/waiting/approvals/{id}", answer)
    assert "LS" in str(ended[0].result.content)
    records = await console.crib.audit.find(Filters(tool="approvals.answer", phase="outcome"))
    assert [record["arguments"]["arguments"] for record in records] == [{"text": "ls"}]


LONG = "x" * 12_841


async def test_card_shows_sizes_remarks_and_counted_blanks(console: ConsoleClient) -> None:
    text = "ls" + "\n" * 300 + "rm -rf ~" + " " * 4_000 + "\u00a0p\u0430ypal"
    async with open_call(console, {"text": text}) as (id, _):
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


async def test_long_argument_must_be_opened_before_approval(console: ConsoleClient) -> None:
    async with open_call(console, {"text": LONG}) as (id, ended):
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


async def test_replaced_long_argument_need_not_be_opened(console: ConsoleClient) -> None:
    async with open_call(console, {"text": LONG}) as (id, ended):
        await console.send(f"/waiting/approvals/{id}", {"decision": "approve", "arguments": '{"text": "short"}'})
    assert ended[0].result.content[0]["text"] == "SHORT"


async def test_card_shows_the_exact_rule_before_it_is_added(console: ConsoleClient) -> None:
    async with open_call(console, {"text": "hi"}) as (id, _):
        page = await console.page("/waiting")
        exact = page.one("input", name="prefix-always", value="")
        assert "checked" in exact.attributes
        assert "Allow every call of lab/shout, with any arguments, for the owner of agent builder" in page.text
        await console.send(f"/waiting/approvals/{id}", {"decision": "always", "prefix-always": ""})
    (rule,) = console.crib.permissions.list()
    assert rule.principal is not None
    assert (rule.principal.agent, rule.principal.source) == ("builder", "api")


async def test_page_follows_events_since_before_its_content_was_read(
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
