"""MCP clients that do not wait for approvals: a pending call returns a handle, with which the client retries it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp import Client, MCPError

from integration.gate.permissions.shop_lab import ShopLab, expire_approvals_after, open_shop_lab
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
async def asking_lab(lab: ShopLab) -> ShopLab:
    """Return a crib with an ask rule for `shop/sell`."""
    await lab.owner.permissions.add_rule(ASK)
    return lab


class NonWaitingClient:
    """A client that never waits for an approval."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def sell(self, handle: str = "handle", **arguments: Any) -> Any:
        """Call the tool with a handle."""
        given = {"what": "tea"} | arguments
        with anyio.fail_after(10):
            return await self.client.call_tool("shop_sell", given, meta={"toolcrib/approval": handle})

    async def request_approval(self, **arguments: Any) -> str:
        """Request a new approval and return its id."""
        answer = await self.sell(**arguments)
        assert (answer.is_error, answer.structured_content["status"]) == (True, "waiting")
        return answer.structured_content["approvalId"]

    async def refusal(self, handle: str, **arguments: Any) -> str:
        """Return the error text of a refused call."""
        answer = await self.sell(handle, **arguments)
        assert answer.is_error
        assert answer.structured_content is None
        return answer.content[0].text


@asynccontextmanager
async def open_client(
    lab: ShopLab, era: ModeName = "2026-07-28", name: str = "ide"
) -> AsyncGenerator[NonWaitingClient]:
    """Open a client with a token of its own."""
    async with lab.mcp(await lab.token(name), era) as client:
        yield NonWaitingClient(client)


@both_eras
async def test_pending_call_returns_a_handle_and_runs_once_when_approved(asking_lab: ShopLab, era: ModeName) -> None:
    async with open_client(asking_lab, era) as client:
        waiting = await client.sell(amount=2)
        id = waiting.structured_content["approvalId"]
        [approval] = await asking_lab.owner.permissions.approvals(status="pending")
        assert (approval["id"], approval["arguments"]) == (id, {"what": "tea", "amount": 2})
        assert waiting.structured_content["expiresAt"][:19] == approval["expiresAt"][:19]
        assert f"toolcrib approvals approve {id}" in waiting.content[0].text
        assert f'"toolcrib/approval": "{id}"' in waiting.content[0].text
        again = await client.sell(id, amount=2)
        assert (again.is_error, again.structured_content) == (True, waiting.structured_content)
        await asking_lab.answer(id, "approve")
        assert asking_lab.shop.sold == [], "the call ran before the client retried it"
        done = await client.sell(id, amount=2)
        assert (done.is_error, done.content[0].text) == (False, "sold 2 tea")
        assert "already used" in await client.refusal(id, amount=2)
    assert asking_lab.shop.sold == [("tea", 2)]
    records = await asking_lab.records()
    assert {record["approvalId"] for record in records[:4]} == {id}
    phases = [(record["phase"], record.get("isError")) for record in records]
    not_made = ("outcome", True)
    assert phases == [not_made, not_made, ("intent", None), ("outcome", False), not_made]


async def test_concurrent_retries_of_a_handle_run_once(asking_lab: ShopLab) -> None:
    async with open_client(asking_lab) as client:
        id = await client.request_approval()
        await asking_lab.answer(id, "approve")
        answers: list[Any] = []

        async def retry() -> None:
            answers.append(await client.sell(id))

        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(retry)
    assert [answer.is_error for answer in answers].count(False) == 1
    assert asking_lab.shop.sold == [("tea", 1)]


@both_eras
async def test_denial_is_returned_with_its_reason_at_every_retry(asking_lab: ShopLab, era: ModeName) -> None:
    async with open_client(asking_lab, era) as client:
        id = await client.request_approval()
        await asking_lab.answer(id, "deny", reason="We are out of tea.")
        for _ in range(2):
            assert await client.refusal(id) == (
                "A person denied this call: We are out of tea. Continue without this call, or ask the person."
            )
    assert asking_lab.shop.sold == []


async def test_unanswered_handle_is_denied_at_timeout(asking_lab: ShopLab, monkeypatch: pytest.MonkeyPatch) -> None:
    expire_approvals_after(monkeypatch, 0.05)
    async with open_client(asking_lab) as client:
        id = await client.request_approval()

        async def expired() -> bool:
            return (await asking_lab.owner.permissions.approval(id))["status"] == "expired"

        await asking_lab.until(expired)
        assert "was not answered within" in await client.refusal(id)
    assert asking_lab.shop.sold == []


async def test_approval_that_is_not_used_in_time_expires(asking_lab: ShopLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handles, "FETCHED_WITHIN", 0.0)
    async with open_client(asking_lab) as client:
        id = await client.request_approval()
        await asking_lab.answer(id, "approve")
        assert "has expired" in await client.refusal(id)
    assert asking_lab.shop.sold == []


async def test_handle_belongs_to_one_call_and_one_token(asking_lab: ShopLab) -> None:
    async with open_client(asking_lab) as client, open_client(asking_lab, name="other") as other:
        id = await client.request_approval()
        await asking_lab.answer(id, "approve")
        for refusal in (
            await client.refusal(id, amount=9),
            await client.refusal(id, what="gold"),
            await client.refusal("0" * 16),
            await other.refusal(id),
        ):
            assert "does not belong to this call" in refusal
        looked = await client.client.call_tool("shop_look", {}, meta={"toolcrib/approval": id})
        assert looked.is_error
        assert asking_lab.shop.sold == []
        assert (await client.sell(id)).content[0].text == "sold 1 tea"


async def test_handle_is_void_after_the_definition_changed(asking_lab: ShopLab) -> None:
    async with open_client(asking_lab) as client:
        id = await client.request_approval()
        await asking_lab.answer(id, "approve")

        @tool
        async def sell(what: str, amount: int = 1) -> str:
            """Give everything away."""
            asking_lab.shop.sold.append(("all", amount))
            return what

        asking_lab.replace(ToolServer("shop", tools=[sell]))
        assert "does not belong to this call" in await client.refusal(id)
    assert asking_lab.shop.sold == []


async def test_edited_arguments_run_and_a_remembered_answer_applies(asking_lab: ShopLab) -> None:
    async with open_client(asking_lab) as client:
        id = await client.request_approval(amount=50)
        await asking_lab.answer(id, "approve", scope="always", arguments={"what": "tea", "amount": 2})
        sold, note = (await client.sell(id, amount=50)).content
        assert (sold.text, note.text.endswith('It ran with: {"amount":2,"what":"tea"}')) == ("sold 2 tea", True)
        assert (await client.sell("handle", amount=3)).content[0].text == "sold 3 tea", (
            "the remembered answer did not apply"
        )
    assert asking_lab.shop.sold == [("tea", 2), ("tea", 3)]


async def test_deny_rule_added_after_the_approval_wins(asking_lab: ShopLab) -> None:
    async with open_client(asking_lab) as client:
        id = await client.request_approval()
        await asking_lab.answer(id, "approve")
        await asking_lab.owner.permissions.add_rule({"effect": "deny", "pattern": "shop/sell"})
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.sell(id)
    assert asking_lab.shop.sold == []


async def test_repeated_pending_call_returns_the_same_handle(asking_lab: ShopLab) -> None:
    async with open_client(asking_lab) as client:
        ids = {await client.request_approval() for _ in range(150)}
        assert len(ids) == 1
        assert await client.request_approval(amount=7) not in ids


async def test_handles_end_with_the_crib(tmp_path: Path) -> None:
    async with open_shop_lab(tmp_path) as lab:
        await lab.owner.permissions.add_rule(ASK)
        secret = await lab.token("ide")
        async with lab.mcp(secret, "2026-07-28") as client:
            pending, approved = (
                await NonWaitingClient(client).request_approval(),
                await NonWaitingClient(client).request_approval(amount=2),
            )
        await lab.answer(approved, "approve")
    async with open_shop_lab(tmp_path) as lab, lab.mcp(secret, "2026-07-28") as client:
        assert "stopped before the approval was answered" in await NonWaitingClient(client).refusal(pending)
        assert "has expired" in await NonWaitingClient(client).refusal(approved, amount=2)
        assert lab.shop.sold == []


async def test_revoked_token_withdraws_its_approvals(asking_lab: ShopLab) -> None:
    async with open_client(asking_lab) as client:
        id = await client.request_approval()
    await asking_lab.owner.permissions.revoke_token("ide")

    async def withdrawn() -> bool:
        return (await asking_lab.owner.permissions.approval(id))["status"] == "withdrawn"

    await asking_lab.until(withdrawn)


async def test_stop_all_voids_approvals_that_were_not_used(asking_lab: ShopLab) -> None:
    secret = await asking_lab.token("ide")
    async with asking_lab.mcp(secret, "2026-07-28") as client:
        id = await NonWaitingClient(client).request_approval()
    await asking_lab.answer(id, "approve")
    await asking_lab.owner.stop_all("Enough.")
    await asking_lab.owner.resume_all()
    async with asking_lab.mcp(secret, "2026-07-28") as client:
        assert "was already used" in await NonWaitingClient(client).refusal(id)
    assert asking_lab.shop.sold == []


async def test_failing_wait_for_a_handle_withdraws_only_its_approval(
    asking_lab: ShopLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> object:
        raise RuntimeError("a fault")

    async with open_client(asking_lab) as client:
        with monkeypatch.context() as broken:
            broken.setattr(Approvals, "wait", fail)
            id = await client.request_approval()

            async def withdrawn() -> bool:
                return (await asking_lab.owner.permissions.approval(id))["status"] == "withdrawn"

            await asking_lab.until(withdrawn)
        assert "The call ended before" in await client.refusal(id)
        again = await client.request_approval()
        await asking_lab.answer(again, "approve")
        assert not (await client.sell(again)).is_error
    assert asking_lab.shop.sold == [("tea", 1)]


async def test_handle_that_is_no_string_is_a_malformed_request(asking_lab: ShopLab) -> None:
    async with open_client(asking_lab) as client:
        with pytest.raises(MCPError, match="toolcrib/approval must be a string"):
            await client.client.call_tool("shop_sell", {"what": "tea"}, meta={"toolcrib/approval": 1})


async def test_denied_approval_no_longer_counts_as_pending(
    asking_lab: ShopLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.gate.approvals.approvals.MOST_OPEN_PER_CALLER", 1)
    async with open_client(asking_lab) as client:
        id = await client.request_approval()
        assert "are pending" in await client.refusal("handle", amount=2)
        await asking_lab.answer(id, "deny", reason="We are out of tea.")
        with anyio.fail_after(10):
            while (answer := await client.sell(amount=2)).structured_content is None:
                await anyio.lowlevel.checkpoint()
        assert answer.structured_content["status"] == "waiting"
        assert "We are out of tea." in await client.refusal(id)
