"""What waits for a person, answered in the console: bound to what was shown, and on record."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from integration.console.visitor import Visitor
from toolcrib.audit import Filters
from toolcrib.gate import Called
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import ToolRef
from toolcrib.tools import ToolServer, tool

pytestmark = pytest.mark.anyio

HIDDEN = "a\u202eb\u200d"


@tool
def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


@asynccontextmanager
async def waiting(visitor: Visitor, arguments: JsonObject) -> AsyncGenerator[tuple[str, list[Called]]]:
    """A call that waits: the id of its question, and what became of it after the block."""
    crib = visitor.crib
    crib.register(ToolServer("lab", tools=[shout]))
    ended: list[Called] = []

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


async def test_a_call_is_approved_as_it_was_shown_although_it_holds_what_cannot_be_seen(visitor: Visitor) -> None:
    async with waiting(visitor, {"text": HIDDEN}) as (id, ended):
        page = await visitor.page("/waiting")
        shown = page.one("textarea", name="arguments").raw_text
        assert "a\\u{202e}b\\u{200d}" in shown
        await visitor.send(f"/waiting/approvals/{id}", {"decision": "approve", "arguments": shown})
    assert [part["text"] for part in ended[0].result.content] == [HIDDEN.upper()]
    (record,) = await visitor.crib.audit.find(Filters(tool="approvals.answer", phase="outcome"))
    assert (record["door"], record["arguments"]) == ("console", {"id": id, "decision": "approve", "scope": "once"})


async def test_other_arguments_and_a_reason_reach_the_call_and_the_record(visitor: Visitor) -> None:
    async with waiting(visitor, {"text": "rm"}) as (id, ended):
        answer = {"decision": "approve", "arguments": '{"text": "ls"}'}
        assert "not JSON" in (await visitor.send(f"/waiting/approvals/{id}", answer | {"arguments": "{"}, 422)).text
        await visitor.send(f"/waiting/approvals/{id}", answer)
    assert "LS" in str(ended[0].result.content)
    records = await visitor.crib.audit.find(Filters(tool="approvals.answer", phase="outcome"))
    assert [record["arguments"]["arguments"] for record in records] == [{"text": "ls"}]
