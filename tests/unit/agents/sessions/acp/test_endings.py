"""How turns of ACP agents end, and what they cost."""

import pytest
from acp import RequestError

from toolcrib.agents.sessions.acp.endings import AcpMeter, ending, refused
from toolcrib.model.json import JsonObject


def cost(amount: float, currency: str = "USD") -> JsonObject:
    """Return an update with the total cost so far."""
    return {"sessionUpdate": "usage_update", "cost": {"amount": amount, "currency": currency}}


@pytest.mark.parametrize(
    ("stop", "reason", "code"),
    [
        ("end_turn", "completed", None),
        ("cancelled", "interrupted", None),
        ("max_tokens", "limit", "runner.limit"),
        ("max_turn_requests", "limit", "runner.limit"),
        ("refusal", "failed", "runner.failed"),
    ],
)
def test_stop_reason_determines_the_end_of_the_turn(stop: str, reason: str, code: str | None) -> None:
    end = ending({"stopReason": stop}, "r", AcpMeter())
    assert (end.reason, end.runtime, end.failure.code if end.failure else None) == (reason, "r", code)


def test_turn_costs_the_increase_of_the_total() -> None:
    meter = AcpMeter()
    spent: list[float] = []
    for amounts in ((0.1, 0.25), (0.25, 0.75)):
        for amount in amounts:
            meter.take(cost(amount))
        spent.append(meter.spent({"inputTokens": 3, "cachedReadTokens": 4, "outputTokens": 5}).cost_usd)
    assert spent == [0.25, 0.5]
    assert meter.spent({"inputTokens": 3, "cachedReadTokens": 4}).input_tokens == 7


def test_earlier_cost_of_a_resumed_conversation_does_not_count() -> None:
    meter = AcpMeter(total=None)
    meter.take(cost(2.0))
    assert meter.spent(None).cost_usd == 0
    meter.take(cost(2.5))
    assert meter.spent(None).cost_usd == 0.5


def test_other_currencies_and_invalid_updates_do_not_count() -> None:
    meter = AcpMeter()
    for update in (cost(3.0, "EUR"), {"sessionUpdate": "usage_update"}, {"cost": {"amount": 1, "currency": "USD"}}):
        meter.take(update)
    assert meter.spent("odd").cost_usd == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestError(-32000, "who?"), "runner.login"),
        (RequestError(-32603, "no money", {"errorKind": "billing_error"}), "runner.credit"),
        (RequestError(-32603, "odd", {"errorKind": "unknown"}), "runner.failed"),
        (RequestError(-32603, "odd"), "runner.failed"),
    ],
)
def test_request_error_maps_to_a_code_and_has_a_hint(error: RequestError, code: str) -> None:
    failure = refused("mine", error)
    assert failure.code == code
    assert str(error) in failure.message
    assert failure.hint
