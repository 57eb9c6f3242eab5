"""Parts of the decision that fail, return nothing or time out: the call is refused and recorded."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from integration.gate.permissions.shop_lab import SELL, ShopLab, background_call
from toolcrib.gate import view
from toolcrib.gate.approvals.approvals import Approvals
from toolcrib.gate.approvals.consent import Consent
from toolcrib.gate.audit.call_records import CallRecords
from toolcrib.gate.gate import Gate
from toolcrib.gate.policy.limits import Limit, Limits
from toolcrib.gate.principals import Principals
from toolcrib.model.errors import ToolcribError, Unavailable

pytestmark = pytest.mark.anyio

Break = Callable[..., Any]


def raises(*_: object, **__: object) -> Any:
    raise RuntimeError("it broke")


def times_out(*_: object, **__: object) -> Any:
    raise TimeoutError


def returns_none(*_: object, **__: object) -> Any:
    return None


async def raises_later(*_: object, **__: object) -> Any:
    raise RuntimeError("it broke")


async def times_out_later(*_: object, **__: object) -> Any:
    raise TimeoutError


async def returns_none_later(*_: object, **__: object) -> Any:
    return None


FAULTS: list[Break] = [raises, times_out, returns_none]
ASYNC_FAULTS: list[Break] = [raises_later, times_out_later, returns_none_later]


async def refused_call_phases(lab: ShopLab, mode: Any = "bypassPermissions") -> list[str]:
    """Call over the library and MCP; both must fail. Return the phases of the audit records."""
    principal = lab.crib.principals.owner("api", mode=mode)
    async with background_call(lambda: lab.crib.call(SELL, {"what": "tea"}, principal=principal)) as call:
        pass
    assert isinstance(call.raised, ToolcribError), (call.result, call.raised)
    async with (
        lab.mcp(await lab.token("ide", mode=mode), "2026-07-28") as client,
        background_call(lambda: client.call_tool("shop_sell", {"what": "tea"})) as call,
    ):
        pass
    assert call.raised is not None or call.result.is_error
    assert lab.shop.sold == []
    return [record["phase"] for record in await lab.records()]


@pytest.mark.parametrize("fault", FAULTS)
async def test_failing_decision_refuses_the_call(lab: ShopLab, monkeypatch: pytest.MonkeyPatch, fault: Break) -> None:
    for part in ("decide", "sees"):
        monkeypatch.setattr(view, part, fault)
    assert await refused_call_phases(lab) == ["outcome", "outcome"]
    assert await lab.owner.tools() == []


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("part", ["_rules", "_grants", "_limits"])
async def test_failing_rules_grants_or_limits_refuse_the_call(
    lab: ShopLab, monkeypatch: pytest.MonkeyPatch, part: str, fault: Break
) -> None:
    monkeypatch.setattr(lab.crib.gate if part == "_limits" else lab.crib.gate.views, part, fault)
    assert await refused_call_phases(lab) == ["outcome", "outcome"]
    if part != "_limits":
        assert await lab.owner.tools() == []
    monkeypatch.undo()
    assert not (await lab.owner.call(SELL, {"what": "tea"}))["isError"], "the call is still refused after the fault"


@pytest.mark.parametrize("fault", [raises, times_out])
async def test_failing_limit_check_refuses_the_call(
    lab: ShopLab, monkeypatch: pytest.MonkeyPatch, fault: Break
) -> None:
    lab.crib.permissions.limits.set([Limit(calls=100)])
    monkeypatch.setattr(Limits, "check", fault)
    assert await refused_call_phases(lab) == ["outcome", "outcome"]


@pytest.mark.parametrize("fault", ASYNC_FAULTS)
async def test_failing_request_for_consent_refuses_the_call(
    lab: ShopLab, monkeypatch: pytest.MonkeyPatch, fault: Break
) -> None:
    monkeypatch.setattr(Consent, "obtain", fault)
    assert await refused_call_phases(lab, "default") == ["outcome", "outcome"]


@pytest.mark.parametrize("fault", ASYNC_FAULTS)
async def test_failing_wait_for_an_approval_refuses_the_call(
    lab: ShopLab, monkeypatch: pytest.MonkeyPatch, fault: Break
) -> None:
    monkeypatch.setattr(Approvals, "wait", fault)
    assert await refused_call_phases(lab, "default") == ["outcome", "outcome"]
    assert {each["status"] for each in await lab.owner.permissions.approvals()} == {"withdrawn"}


async def test_approval_that_cannot_be_stored_refuses_the_call(lab: ShopLab, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unavailable(*_: object) -> None:
        raise Unavailable("database.unavailable", "The disk is full.")

    monkeypatch.setattr("toolcrib.gate.approvals.approvals.save_approval", unavailable)
    assert await refused_call_phases(lab, "default") == ["outcome", "outcome"]


@pytest.mark.parametrize("fault", FAULTS)
async def test_failing_check_of_the_answerer_leaves_the_approval_pending(
    lab: ShopLab, monkeypatch: pytest.MonkeyPatch, fault: Break
) -> None:
    principal = lab.crib.principals.owner("api", mode="default")
    async with background_call(lambda: lab.crib.call(SELL, {"what": "tea"}, principal=principal)) as call:
        approval = await lab.pending_approval()
        monkeypatch.setattr(lab.crib.approvals, "_may_answer", fault)
        async with lab.http() as http:
            answer = await http.post(f"/api/approvals/{approval['id']}", json={"decision": "approve"})
        assert answer.status_code >= 400
        monkeypatch.undo()
        assert (await lab.owner.permissions.approval(approval["id"]))["status"] == "pending"
        await lab.answer(approval["id"], "deny")
    assert call.raised is not None
    assert lab.shop.sold == []


@pytest.mark.parametrize("fault", FAULTS)
async def test_failing_authentication_refuses_the_call(
    lab: ShopLab, monkeypatch: pytest.MonkeyPatch, fault: Break
) -> None:
    secret = await lab.token("robot", source="api", mode="bypassPermissions")
    for part in ("authenticate", "may_reach"):
        with monkeypatch.context() as broken:
            broken.setattr(Principals, part, fault)
            async with lab.http(secret) as http:
                answer = await http.post("/api/tools/shop/sell/call", json={"arguments": {"what": "tea"}})
            assert answer.status_code >= 400
    assert lab.shop.sold == []


@pytest.mark.parametrize("fault", FAULTS)
async def test_failing_audit_refuses_the_call(lab: ShopLab, monkeypatch: pytest.MonkeyPatch, fault: Break) -> None:
    for owner, parts in ((CallRecords, ("create",)), (lab.crib.store, ("append_now", "append"))):
        with monkeypatch.context() as broken:
            for part in parts:
                broken.setattr(owner, part, fault)
            for mode in ("bypassPermissions", "acceptEdits"):
                principal = lab.crib.principals.owner("api", mode=mode)
                async with background_call(
                    lambda principal=principal: lab.crib.call(SELL, {"what": "tea"}, principal=principal)
                ) as call:
                    pass
                assert call.raised is not None
    assert lab.shop.sold == []
    assert await lab.records() == []


async def test_call_is_not_made_when_its_intent_cannot_be_stored(lab: ShopLab, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> "asyncio.Future[int]":
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        future.set_exception(Unavailable("database.unavailable", "The disk is full."))
        return future

    monkeypatch.setattr(lab.crib.store, "append_now", returns_none)
    monkeypatch.setattr(lab.crib.store, "append", full)
    with pytest.raises(Unavailable, match="The call was not made"):
        await lab.owner.call(SELL, {"what": "tea"})
    assert lab.shop.sold == []


async def test_why_is_unavailable_when_the_rules_fail(lab: ShopLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab.crib.gate.views, "_rules", raises)
    assert isinstance(lab.crib.gate, Gate)
    with pytest.raises(Unavailable):
        await lab.owner.permissions.explain("shop/sell")
