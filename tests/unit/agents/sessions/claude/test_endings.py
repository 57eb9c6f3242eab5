"""How turns of Claude Code end, from its machine-readable fields."""

from typing import Any

import pytest
from claude_agent_sdk import ResultMessage

from toolcrib.agents.sessions.claude.endings import ClaudeMeter, ending, retrying, together
from toolcrib.model.errors import CODES
from toolcrib.model.sessions import Spent, TurnEnd


def result(**fields: Any) -> ResultMessage:
    """Return a successful result with these fields replaced."""
    usual: dict[str, Any] = {
        "subtype": "success", "duration_ms": 1, "duration_api_ms": 1, "is_error": False, "num_turns": 1,
        "session_id": "r1", "terminal_reason": "completed",
    }  # fmt: skip
    return ResultMessage(**{**usual, **fields})


@pytest.mark.parametrize(
    ("fields", "reason", "code"),
    [
        ({}, "completed", None),
        ({"subtype": "error_during_execution", "terminal_reason": "aborted_tools"}, "interrupted", None),
        ({"subtype": "error_during_execution", "terminal_reason": "aborted_streaming"}, "interrupted", None),
        ({"subtype": "error_max_turns", "is_error": True}, "limit", "runner.limit"),
        ({"subtype": "error_max_budget_usd", "is_error": True}, "limit", "runner.limit"),
        ({"is_error": True, "terminal_reason": "api_error"}, "failed", "runner.failed"),
        ({"subtype": "error_during_execution", "is_error": True, "errors": ["Boom."]}, "failed", "runner.failed"),
    ],
)
def test_result_determines_the_end_of_the_turn(fields: dict[str, Any], reason: str, code: str | None) -> None:
    end = ending(result(**fields), None, ClaudeMeter())
    assert (end.reason, end.failure and end.failure.code, end.runtime) == (reason, code, "r1")


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        ("authentication_failed", 401, "runner.key"),
        ("authentication_failed", None, "runner.login"),
        ("billing_error", 400, "runner.credit"),
        ("rate_limit", 429, "runner.rate"),
        ("server_error", 529, "runner.overloaded"),
        ("server_error", None, "runner.unreachable"),
        ("model_not_found", 404, "runner.model"),
        ("something_new", 418, "runner.failed"),
        (None, None, "runner.failed"),
    ],
)
def test_api_failure_has_a_code_a_message_and_a_hint(error: str | None, status: int | None, code: str) -> None:
    failed = result(is_error=True, api_error_status=status, result="In its own words.", terminal_reason="api_error")
    failure = ending(failed, error, ClaudeMeter()).failure
    assert failure is not None
    assert failure.code == code
    assert failure.message == f"{CODES[code].meaning} Claude Code says: In its own words."
    assert failure.hint == CODES[code].hint


def test_spent_covers_the_turn_with_sub_agents_and_cache() -> None:
    meter = ClaudeMeter()
    used = {"inputTokens": 10, "cacheReadInputTokens": 5, "cacheCreationInputTokens": 1, "outputTokens": 3}
    meter.start_at(0.5, {"a": used})
    first = ending(result(total_cost_usd=0.75, model_usage={"a": used, "b": used}, num_turns=2), None, meter)
    second = ending(result(total_cost_usd=0.75, model_usage={"a": used, "b": used}), None, meter)
    assert first.spent == Spent(0.25, 16, 3, 2)
    assert second.spent == Spent(0.0, 0, 0, 1)


def test_decreasing_total_cost_counts_as_zero() -> None:
    meter = ClaudeMeter()
    meter.start_at(1.0, {})
    assert ending(result(total_cost_usd=0.25), None, meter).spent.cost_usd == 0.0


def test_several_results_are_combined_into_one_end() -> None:
    ends = [TurnEnd("completed", "r1", Spent(0.5, 1, 2, 3)), TurnEnd("interrupted", "r1", Spent(0.25, 1, 1, 1))]
    assert together(ends, is_alive=False) == TurnEnd("interrupted", "r1", Spent(0.75, 2, 3, 4), is_alive=False)


def test_retry_without_details_has_a_complete_message() -> None:
    assert retrying({}).message == "The runtime of the session failed. Retrying, attempt 1 of 1."
