"""Whatever has a say in a call may break, say nothing or run out of time: the call is refused, and on record."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from integration.gate.permissions.answering import SELL, Desk, calling
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


def breaks(*_: object, **__: object) -> Any:
    raise RuntimeError("it broke")


def times_out(*_: object, **__: object) -> Any:
    raise TimeoutError


def nothing(*_: object, **__: object) -> Any:
    return None


async def breaks_later(*_: object, **__: object) -> Any:
    raise RuntimeError("it broke")


async def times_out_later(*_: object, **__: object) -> Any:
    raise TimeoutError


async def nothing_later(*_: object, **__: object) -> Any:
    return None


AT_ONCE: list[Break] = [breaks, times_out, nothing]
LATER: list[Break] = [breaks_later, times_out_later, nothing_later]


async def refused(desk: Desk, mode: Any = "bypassPermissions") -> list[str]:
    """Call in every way; gives what is on record of it."""
    asker = desk.crib.principals.owner("api", mode=mode)
    async with calling(lambda: desk.crib.call(SELL, {"what": "tea"}, principal=asker)) as call:
        pass
    assert isinstance(call.raised, ToolcribError), (call.gave, call.raised)
    async with (
        desk.mcp(await desk.token("ide", mode=mode), "2026-07-28") as client,
        calling(lambda: client.call_tool("shop_sell", {"what": "tea"})) as call,
    ):
        pass
    assert call.raised is not None or call.gave.is_error
    assert desk.shop.sold == []
    return [record["phase"] for record in await desk.records()]


@pytest.mark.parametrize("fault", AT_ONCE)
async def test_deciding(desk: Desk, monkeypatch: pytest.MonkeyPatch, fault: Break) -> None:
    for part in ("decide", "sees"):
        monkeypatch.setattr(view, part, fault)
    assert await refused(desk) == ["outcome", "outcome"]
    assert await desk.owner.tools() == []


@pytest.mark.parametrize("fault", AT_ONCE)
@pytest.mark.parametrize("part", ["_rules", "_grants", "_limits"])
async def test_rules_grants_and_limits(desk: Desk, monkeypatch: pytest.MonkeyPatch, part: str, fault: Break) -> None:
    monkeypatch.setattr(desk.crib.gate if part == "_limits" else desk.crib.gate.views, part, fault)
    assert await refused(desk) == ["outcome", "outcome"]
    if part != "_limits":
        assert await desk.owner.tools() == []
    monkeypatch.undo()
    assert not (await desk.owner.call(SELL, {"what": "tea"}))["isError"], "it is over when the fault is"


@pytest.mark.parametrize("fault", [breaks, times_out])
async def test_checking_a_limit(desk: Desk, monkeypatch: pytest.MonkeyPatch, fault: Break) -> None:
    desk.crib.permissions.limits.set([Limit(calls=100)])
    monkeypatch.setattr(Limits, "check", fault)
    assert await refused(desk) == ["outcome", "outcome"]


@pytest.mark.parametrize("fault", LATER)
async def test_asking(desk: Desk, monkeypatch: pytest.MonkeyPatch, fault: Break) -> None:
    monkeypatch.setattr(Consent, "obtain", fault)
    assert await refused(desk, "default") == ["outcome", "outcome"]


@pytest.mark.parametrize("fault", LATER)
async def test_waiting_for_an_answer(desk: Desk, monkeypatch: pytest.MonkeyPatch, fault: Break) -> None:
    monkeypatch.setattr(Approvals, "wait", fault)
    assert await refused(desk, "default") == ["outcome", "outcome"]
    assert {each["status"] for each in await desk.owner.permissions.approvals()} == {"withdrawn"}


async def test_keeping_a_question(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unavailable(*_: object) -> None:
        raise Unavailable("database.unavailable", "The disk is full.")

    monkeypatch.setattr("toolcrib.gate.approvals.approvals.save_approval", unavailable)
    assert await refused(desk, "default") == ["outcome", "outcome"]


@pytest.mark.parametrize("fault", AT_ONCE)
async def test_judging_who_may_answer(desk: Desk, monkeypatch: pytest.MonkeyPatch, fault: Break) -> None:
    asker = desk.crib.principals.owner("api", mode="default")
    async with calling(lambda: desk.crib.call(SELL, {"what": "tea"}, principal=asker)) as call:
        question = await desk.question()
        monkeypatch.setattr(desk.crib.approvals, "_may_answer", fault)
        async with desk.http() as http:
            answer = await http.post(f"/api/approvals/{question['id']}", json={"decision": "approve"})
        assert answer.status_code >= 400
        monkeypatch.undo()
        assert (await desk.owner.permissions.approval(question["id"]))["status"] == "pending"
        await desk.answer(question["id"], "deny")
    assert call.raised is not None
    assert desk.shop.sold == []


@pytest.mark.parametrize("fault", AT_ONCE)
async def test_the_credential(desk: Desk, monkeypatch: pytest.MonkeyPatch, fault: Break) -> None:
    secret = await desk.token("robot", source="api", mode="bypassPermissions")
    for part in ("authenticate", "may_reach"):
        with monkeypatch.context() as broken:
            broken.setattr(Principals, part, fault)
            async with desk.http(secret) as http:
                answer = await http.post("/api/tools/shop/sell/call", json={"arguments": {"what": "tea"}})
            assert answer.status_code >= 400
    assert desk.shop.sold == []


@pytest.mark.parametrize("fault", AT_ONCE)
async def test_the_record_itself(desk: Desk, monkeypatch: pytest.MonkeyPatch, fault: Break) -> None:
    for owner, parts in ((CallRecords, ("create",)), (desk.crib.store, ("append_now", "append"))):
        with monkeypatch.context() as broken:
            for part in parts:
                broken.setattr(owner, part, fault)
            for mode in ("bypassPermissions", "acceptEdits"):
                asker = desk.crib.principals.owner("api", mode=mode)
                async with calling(lambda asker=asker: desk.crib.call(SELL, {"what": "tea"}, principal=asker)) as call:
                    pass
                assert call.raised is not None
    assert desk.shop.sold == []
    assert await desk.records() == []


async def test_an_intent_that_cannot_be_kept_is_a_call_that_is_not_made(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> "asyncio.Future[int]":
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        future.set_exception(Unavailable("database.unavailable", "The disk is full."))
        return future

    monkeypatch.setattr(desk.crib.store, "append_now", nothing)
    monkeypatch.setattr(desk.crib.store, "append", full)
    with pytest.raises(Unavailable, match="The call was not made"):
        await desk.owner.call(SELL, {"what": "tea"})
    assert desk.shop.sold == []


async def test_why_says_that_it_cannot_tell(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk.crib.gate.views, "_rules", breaks)
    assert isinstance(desk.crib.gate, Gate)
    with pytest.raises(Unavailable):
        await desk.owner.permissions.explain("shop/sell")
