"""MCP clients that do not wait for a person: they get a handle, and come back with it for the one call it is about."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp import Client, MCPError

from integration.gate.permissions.answering import Desk, open_desk, unanswered
from lab import ModeName
from toolcrib.gate.approvals import handles
from toolcrib.gate.approvals.approvals import Approvals
from toolcrib.model.json import JsonObject
from toolcrib.tools import ToolServer, tool

pytestmark = pytest.mark.anyio

ERAS: list[ModeName] = ["legacy", "2026-07-28"]
both_eras = pytest.mark.parametrize("era", ERAS)
ASK: JsonObject = {"effect": "ask", "pattern": "shop/sell"}


@pytest.fixture
async def asking(desk: Desk) -> Desk:
    """A crib in which a person is asked before anything is sold."""
    await desk.owner.permissions.add_rule(ASK)
    return desk


class Ide:
    """A client that never waits."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def sell(self, handle: str = "handle", **arguments: Any) -> Any:
        """Call the tool with a handle."""
        given = {"what": "tea"} | arguments
        with anyio.fail_after(10):
            return await self.client.call_tool("shop_sell", given, meta={"toolcrib/approval": handle})

    async def ask(self, **arguments: Any) -> str:
        """The number of a new question."""
        answer = await self.sell(**arguments)
        assert (answer.is_error, answer.structured_content["status"]) == (True, "waiting")
        return answer.structured_content["approvalId"]

    async def refusal(self, handle: str, **arguments: Any) -> str:
        """Why the call is refused."""
        answer = await self.sell(handle, **arguments)
        assert answer.is_error
        assert answer.structured_content is None
        return answer.content[0].text


@asynccontextmanager
async def ide(desk: Desk, era: ModeName = "2026-07-28", name: str = "ide") -> AsyncGenerator[Ide]:
    """A client with a token of its own."""
    async with desk.mcp(await desk.token(name), era) as client:
        yield Ide(client)


@both_eras
async def test_the_call_returns_at_once_with_a_handle_and_runs_once_when_it_comes_back_approved(
    asking: Desk, era: ModeName
) -> None:
    async with ide(asking, era) as client:
        waiting = await client.sell(amount=2)
        id = waiting.structured_content["approvalId"]
        [question] = await asking.owner.permissions.approvals(status="pending")
        assert (question["id"], question["arguments"]) == (id, {"what": "tea", "amount": 2})
        assert waiting.structured_content["expiresAt"][:19] == question["expiresAt"][:19]
        assert f"toolcrib approvals approve {id}" in waiting.content[0].text
        assert f'"toolcrib/approval": "{id}"' in waiting.content[0].text
        again = await client.sell(id, amount=2)
        assert (again.is_error, again.structured_content) == (True, waiting.structured_content)
        await asking.answer(id, "approve")
        assert asking.shop.sold == [], "nothing runs before the client is back"
        done = await client.sell(id, amount=2)
        assert (done.is_error, done.content[0].text) == (False, "sold 2 tea")
        assert "already used" in await client.refusal(id, amount=2)
    assert asking.shop.sold == [("tea", 2)]
    records = await asking.records()
    assert {record["approvalId"] for record in records[:4]} == {id}
    told = [(record["phase"], record.get("isError")) for record in records]
    unrun = ("outcome", True)
    assert told == [unrun, unrun, ("intent", None), ("outcome", False), unrun]


async def test_a_hundred_that_come_back_at_once_get_one_run(asking: Desk) -> None:
    async with ide(asking) as client:
        id = await client.ask()
        await asking.answer(id, "approve")
        answers: list[Any] = []

        async def come_back() -> None:
            answers.append(await client.sell(id))

        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(come_back)
    assert [answer.is_error for answer in answers].count(False) == 1
    assert asking.shop.sold == [("tea", 1)]


@both_eras
async def test_a_denial_is_told_with_its_reason_as_often_as_it_is_asked_for(asking: Desk, era: ModeName) -> None:
    async with ide(asking, era) as client:
        id = await client.ask()
        await asking.answer(id, "deny", reason="We are out of tea.")
        for _ in range(2):
            assert await client.refusal(id) == (
                "A person denied this call: We are out of tea. Continue without this call, or ask the person."
            )
    assert asking.shop.sold == []


async def test_what_nobody_answers_in_time_is_denied(asking: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    unanswered(monkeypatch, 0.05)
    async with ide(asking) as client:
        id = await client.ask()

        async def expired() -> bool:
            return (await asking.owner.permissions.approval(id))["status"] == "expired"

        await asking.until(expired)
        assert "was not answered within" in await client.refusal(id)
    assert asking.shop.sold == []


async def test_an_approval_that_nobody_fetches_in_time_is_void(asking: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handles, "FETCHED_WITHIN", 0.0)
    async with ide(asking) as client:
        id = await client.ask()
        await asking.answer(id, "approve")
        assert "has expired" in await client.refusal(id)
    assert asking.shop.sold == []


async def test_a_handle_is_for_the_very_call_that_was_asked_about(asking: Desk) -> None:
    async with ide(asking) as client, ide(asking, name="other") as other:
        id = await client.ask()
        await asking.answer(id, "approve")
        for refusal in (
            await client.refusal(id, amount=9),
            await client.refusal(id, what="gold"),
            await client.refusal("0" * 16),
            await other.refusal(id),
        ):
            assert "does not belong to this call" in refusal
        looked = await client.client.call_tool("shop_look", {}, meta={"toolcrib/approval": id})
        assert looked.is_error
        assert asking.shop.sold == []
        assert (await client.sell(id)).content[0].text == "sold 1 tea"


async def test_a_handle_does_not_outlive_the_definition_it_was_given_for(asking: Desk) -> None:
    async with ide(asking) as client:
        id = await client.ask()
        await asking.answer(id, "approve")

        @tool
        async def sell(what: str, amount: int = 1) -> str:
            """Give everything away."""
            asking.shop.sold.append(("all", amount))
            return what

        asking.replace(ToolServer("shop", tools=[sell]))
        assert "does not belong to this call" in await client.refusal(id)
    assert asking.shop.sold == []


async def test_edited_arguments_and_an_answer_for_good_are_what_runs(asking: Desk) -> None:
    async with ide(asking) as client:
        id = await client.ask(amount=50)
        await asking.answer(id, "approve", scope="always", arguments={"what": "tea", "amount": 2})
        sold, note = (await client.sell(id, amount=50)).content
        assert (sold.text, note.text.endswith('It ran with: {"amount":2,"what":"tea"}')) == ("sold 2 tea", True)
        assert (await client.sell("handle", amount=3)).content[0].text == "sold 3 tea", "nobody has to be asked now"
    assert asking.shop.sold == [("tea", 2), ("tea", 3)]


async def test_a_deny_rule_that_came_meanwhile_wins(asking: Desk) -> None:
    async with ide(asking) as client:
        id = await client.ask()
        await asking.answer(id, "approve")
        await asking.owner.permissions.add_rule({"effect": "deny", "pattern": "shop/sell"})
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.sell(id)
    assert asking.shop.sold == []


async def test_the_same_call_asked_again_is_the_same_question(asking: Desk) -> None:
    async with ide(asking) as client:
        ids = {await client.ask() for _ in range(150)}
        assert len(ids) == 1
        assert await client.ask(amount=7) not in ids


async def test_a_crib_that_ends_takes_its_handles_along(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        await desk.owner.permissions.add_rule(ASK)
        secret = await desk.token("ide")
        async with desk.mcp(secret, "2026-07-28") as client:
            pending, approved = await Ide(client).ask(), await Ide(client).ask(amount=2)
        await desk.answer(approved, "approve")
    async with open_desk(tmp_path) as desk, desk.mcp(secret, "2026-07-28") as client:
        assert "stopped before the approval was answered" in await Ide(client).refusal(pending)
        assert "has expired" in await Ide(client).refusal(approved, amount=2)
        assert desk.shop.sold == []


async def test_a_revoked_token_takes_its_questions_along(asking: Desk) -> None:
    async with ide(asking) as client:
        id = await client.ask()
    await asking.owner.permissions.revoke_token("ide")

    async def withdrawn() -> bool:
        return (await asking.owner.permissions.approval(id))["status"] == "withdrawn"

    await asking.until(withdrawn)


async def test_answer_that_was_not_fetched_ends_with_stop_all(asking: Desk) -> None:
    secret = await asking.token("ide")
    async with asking.mcp(secret, "2026-07-28") as client:
        id = await Ide(client).ask()
    await asking.answer(id, "approve")
    await asking.owner.stop_all("Enough.")
    await asking.owner.resume_all()
    async with asking.mcp(secret, "2026-07-28") as client:
        assert "was already used" in await Ide(client).refusal(id)
    assert asking.shop.sold == []


async def test_a_fault_while_a_question_is_minded_ends_that_question_and_nothing_else(
    asking: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> object:
        raise RuntimeError("a fault")

    async with ide(asking) as client:
        with monkeypatch.context() as broken:
            broken.setattr(Approvals, "wait", fail)
            id = await client.ask()

            async def withdrawn() -> bool:
                return (await asking.owner.permissions.approval(id))["status"] == "withdrawn"

            await asking.until(withdrawn)
        assert "The call ended before" in await client.refusal(id)
        again = await client.ask()
        await asking.answer(again, "approve")
        assert not (await client.sell(again)).is_error
    assert asking.shop.sold == [("tea", 1)]


async def test_a_handle_that_is_no_text_is_a_malformed_request(asking: Desk) -> None:
    async with ide(asking) as client:
        with pytest.raises(MCPError, match="toolcrib/approval must be a string"):
            await client.client.call_tool("shop_sell", {"what": "tea"}, meta={"toolcrib/approval": 1})


async def test_denied_question_no_longer_counts_as_waiting(asking: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.gate.approvals.approvals.MOST_OPEN_PER_CALLER", 1)
    async with ide(asking) as client:
        id = await client.ask()
        assert "are pending" in await client.refusal("handle", amount=2)
        await asking.answer(id, "deny", reason="We are out of tea.")
        with anyio.fail_after(10):
            while (answer := await client.sell(amount=2)).structured_content is None:
                await anyio.lowlevel.checkpoint()
        assert answer.structured_content["status"] == "waiting"
        assert "We are out of tea." in await client.refusal(id)
