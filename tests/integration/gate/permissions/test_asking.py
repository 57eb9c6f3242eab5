"""Calls that need an approval: what the call waits for, what ends the wait, and what runs."""

from pathlib import Path

import anyio
import pytest

from integration.gate.permissions.shop_lab import SELL, ShopLab, background_call, expire_approvals_after, open_shop_lab
from toolcrib.gate.approvals import consent
from toolcrib.model.errors import Conflict, Denied, InvalidRequest, NotFound, ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.tools import ToolServer, tool

pytestmark = pytest.mark.anyio


def code_and_message(error: Exception | None) -> tuple[str, str]:
    assert isinstance(error, ToolcribError), error
    return error.code, error.message


async def test_approved_call_runs_the_shown_arguments_and_is_recorded_afterwards(lab: ShopLab) -> None:
    given: JsonObject = {"what": "tea\u202e\u200b", "amount": 3}
    async with lab.rest(await lab.token("robot", source="api")) as robot:
        async with background_call(lambda: robot.call(SELL, given)) as call:
            approval = await lab.pending_approval()
            assert approval["arguments"] == given
            assert "\u202e" not in approval["shown"]["text"]
            assert (await lab.records(), lab.shop.sold) == ([], [])
            await lab.answer(approval["id"], "approve")
        assert call.result["content"][0]["text"] == "sold 3 tea\u202e\u200b"
    assert lab.shop.sold == [("tea\u202e\u200b", 3)]
    intent, outcome = await lab.records()
    assert [intent["phase"], outcome["phase"]] == ["intent", "outcome"]
    assert {intent["approvalId"], outcome["approvalId"]} == {approval["id"]}
    assert (await lab.owner.permissions.approval(approval["id"]))["decidedAt"] <= intent["at"]


async def test_library_call_waits_for_the_approval(lab: ShopLab) -> None:
    principal = lab.crib.principals.owner("api", mode="default", session="s1")
    async with background_call(lambda: lab.crib.call(SELL, {"what": "tea"}, principal=principal)) as call:
        await lab.answer((await lab.pending_approval())["id"], "approve", scope="session")
    assert call.result.content[0]["text"] == "sold 1 tea"
    again = await lab.crib.call(SELL, {"what": "milk"}, principal=principal)
    assert not again.is_error
    rule = next(each for each in await lab.owner.permissions.rules() if each.get("session") == "s1")
    assert (rule["pattern"], bool(rule["definitionHash"])) == ("shop/sell", True)


async def test_denied_call_returns_the_reason_and_leaves_one_record(lab: ShopLab) -> None:
    async with lab.rest(await lab.token("robot", source="api")) as robot:
        async with background_call(lambda: robot.call(SELL, {"what": "tea"})) as call:
            approval = await lab.pending_approval()
            await lab.answer(approval["id"], "deny", reason="We are out of tea.")
        assert code_and_message(call.raised) == ("approval.denied", "A person denied this call: We are out of tea.")
    [record] = await lab.records()
    assert (record["phase"], record["isError"], record["approvalId"]) == ("outcome", True, approval["id"])
    assert lab.shop.sold == []


async def test_edited_arguments_are_validated_decided_and_recorded(lab: ShopLab) -> None:
    at_least_ten = {"pointer": "/amount", "test": "range", "value": {"min": 10}}
    await lab.owner.permissions.add_rule({"effect": "deny", "pattern": "shop/sell", "conditions": [at_least_ten]})
    async with lab.rest(await lab.token("robot", source="api")) as robot:
        async with background_call(lambda: robot.call(SELL, {"what": "tea", "amount": 5})) as call:
            approval = await lab.pending_approval()
            with pytest.raises(InvalidRequest, match="amount"):
                await lab.answer(approval["id"], "approve", arguments={"what": "tea", "amount": "many"})
            await lab.answer(approval["id"], "approve", arguments={"what": "milk", "amount": 2})
        assert call.result["content"][0]["text"] == "sold 2 milk"
        assert (await lab.records())[0]["arguments"] == {"what": "milk", "amount": 2}
        async with background_call(lambda: robot.call(SELL, {"what": "tea", "amount": 5})) as call:
            await lab.answer((await lab.pending_approval())["id"], "approve", arguments={"what": "tea", "amount": 50})
        assert code_and_message(call.raised)[0] == "policy.denied"
    assert lab.shop.sold == [("milk", 2)]
    last = (await lab.records())[-1]
    assert (last["arguments"]["amount"], last["decision"], last["isError"]) == (50, "deny", True)


async def test_unanswered_call_is_denied_at_timeout(lab: ShopLab, monkeypatch: pytest.MonkeyPatch) -> None:
    expire_approvals_after(monkeypatch, 0.05)
    async with lab.rest(await lab.token("robot", source="api")) as robot:
        with pytest.raises(Denied, match="was not answered within"), anyio.fail_after(10):
            await robot.call(SELL, {"what": "tea"})
    [approval] = await lab.owner.permissions.approvals()
    assert (approval["status"], lab.shop.sold) == ("expired", [])
    with pytest.raises(Conflict):
        await lab.answer(approval["id"], "approve")


async def test_second_answer_over_rest_is_a_conflict(lab: ShopLab) -> None:
    secret = await lab.token("robot", source="api")
    async with lab.rest(secret) as robot, background_call(lambda: robot.call(SELL, {"what": "tea"})):
        approval = await lab.pending_approval()
        await lab.answer(approval["id"], "approve")
        async with lab.http() as http:
            second = await http.post(f"/api/approvals/{approval['id']}", json={"decision": "deny"})
        assert (second.status_code, second.json()["code"]) == (409, "approval.decided")
    assert lab.shop.sold == [("tea", 1)]


async def test_cancelled_call_withdraws_its_approval_and_is_recorded(lab: ShopLab) -> None:
    secret = await lab.token("robot", source="api")
    async with lab.rest(secret) as robot, background_call(lambda: robot.call(SELL, {"what": "tea"})) as call:
        approval = await lab.pending_approval()
        call.scope.cancel()

    async def withdrawn() -> bool:
        return (await lab.owner.permissions.approval(approval["id"]))["status"] == "withdrawn"

    await lab.until(withdrawn)
    with pytest.raises(Conflict):
        await lab.answer(approval["id"], "approve")
    assert lab.shop.sold == []
    [record] = await lab.records()
    assert (record["phase"], record["isError"]) == ("outcome", True)


async def test_stopping_crib_denies_a_call_that_waits_for_approval(tmp_path: Path) -> None:
    open_now = anyio.Event()
    opened: list[ShopLab] = []

    async def call() -> object:
        await open_now.wait()
        principal = opened[0].crib.principals.owner("api", mode="default")
        return await opened[0].crib.call(SELL, {"what": "tea"}, principal=principal)

    async with background_call(call) as waiting, open_shop_lab(tmp_path) as lab:
        opened.append(lab)
        open_now.set()
        approval = await lab.pending_approval()
    code, message = code_and_message(waiting.raised)
    assert (code, "stopped" in message, opened[0].shop.sold) == ("approval.denied", True, [])
    async with open_shop_lab(tmp_path) as lab:
        assert (await lab.owner.permissions.approval(approval["id"]))["status"] == "expired"
        with pytest.raises(Conflict):
            await lab.answer(approval["id"], "approve")


@pytest.mark.parametrize("has_conditions", [False, True])
async def test_deny_rule_added_while_an_approval_is_pending_wins(lab: ShopLab, has_conditions: bool) -> None:
    conditions = [{"pointer": "/what", "test": "equals", "value": "tea"}] if has_conditions else None
    async with lab.rest(await lab.token("robot", source="api")) as robot:
        async with background_call(lambda: robot.call(SELL, {"what": "tea"})) as call:
            approval = await lab.pending_approval()
            rule: JsonObject = {"effect": "deny", "pattern": "shop/*"}
            await lab.owner.permissions.add_rule(rule | ({"conditions": conditions} if conditions else {}))
            await lab.answer(approval["id"], "approve")
        assert isinstance(call.raised, Denied if has_conditions else NotFound)
    assert lab.shop.sold == []
    [record] = await lab.records()
    assert (record["phase"], record["approvalId"]) == ("outcome", approval["id"])


async def test_approval_is_void_after_the_definition_changed(lab: ShopLab) -> None:
    async with lab.rest(await lab.token("robot", source="api")) as robot:
        async with background_call(lambda: robot.call(SELL, {"what": "tea"})) as call:
            approval = await lab.pending_approval()

            @tool
            async def sell(what: str, amount: int = 1) -> str:
                """Give everything away."""
                lab.shop.sold.append(("all", amount))
                return what

            lab.replace(ToolServer("shop", tools=[sell]))
            await lab.answer(approval["id"], "approve")
        assert code_and_message(call.raised)[0] == "tool.changed"
    assert lab.shop.sold == []


async def test_remembered_approval_applies_only_to_its_definition(lab: ShopLab) -> None:
    async with lab.rest(await lab.token("robot", source="api")) as robot:
        async with background_call(lambda: robot.call(SELL, {"what": "tea"})):
            await lab.answer((await lab.pending_approval())["id"], "approve", scope="always")
        await robot.call(SELL, {"what": "milk"})

        @tool
        async def sell(what: str, amount: int = 1) -> str:
            """Sell, in another way."""
            return what

        lab.replace(ToolServer("shop", tools=[sell]))
        async with background_call(lambda: robot.call(SELL, {"what": "tea"})) as call:
            await lab.answer((await lab.pending_approval())["id"], "deny")
        assert code_and_message(call.raised)[0] == "approval.denied"


async def test_waiting_call_reports_progress(lab: ShopLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consent, "SIGN_OF_LIFE", 0.02)
    reports: list[tuple[float, str | None]] = []
    enough = anyio.Event()

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, message))
        if len(reports) >= 3:
            enough.set()

    principal = lab.crib.principals.owner("api", mode="default")
    call_gate = lab.crib.gate.call
    async with background_call(lambda: call_gate(principal, SELL, {"what": "tea"}, door="library", progress=report)):
        with anyio.fail_after(5):
            await enough.wait()
        approval = await lab.pending_approval()
        await lab.answer(approval["id"], "approve")
    numbers = [number for number, _ in reports]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] < 0.01, "progress of the tool must continue above it"
    assert approval["id"] in str(reports[0][1])
