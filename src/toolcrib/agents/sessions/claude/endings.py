"""How Claude Code's turns end: completed, interrupted, at a limit, or failed for a reason that a person can act on.

Decided only by machine-readable values (`error`, `terminal_reason`, the HTTP status), never by prose.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from claude_agent_sdk import AssistantMessage, ResultMessage

from toolcrib.model.errors import CODES
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.sessions import Failure, Spent, TurnEnd

_INTERRUPTED: Final = frozenset({"aborted_streaming", "aborted_tools"})
_LIMITS: Final = {
    "error_max_turns": "The turn limit for one message is reached.",
    "error_max_budget_usd": "The budget of the session is used up.",
}
_ERRORS: Final = {
    "authentication_failed": "runner.key",
    "oauth_org_not_allowed": "runner.key",
    "billing_error": "runner.credit",
    "rate_limit": "runner.rate",
    "server_error": "runner.overloaded",
    "overloaded": "runner.overloaded",
    "model_not_found": "runner.model",
}
_WITHOUT_STATUS: Final = {"runner.key": "runner.login", "runner.overloaded": "runner.unreachable"}
"""The codes if the API did not respond at all: not signed in, or not reachable."""


@dataclass(slots=True)
class ClaudeMeter:
    """Tracks a conversation's usage. Claude Code reports totals for the whole conversation, resumed or not."""

    cost_usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0

    def start_at(self, cost_usd: Json, model_usage: Json) -> None:
        """Set the baseline."""
        self.spend(cost_usd, model_usage, 0)

    def spend(self, cost_usd: Json, model_usage: Json, turns: int) -> Spent:
        """Return the usage since the last call."""
        models = [each for each in model_usage.values() if is_object(each)] if is_object(model_usage) else []
        cost = float(cost_usd or 0.0)
        inputs = sum(
            each.get("inputTokens", 0) + each.get("cacheReadInputTokens", 0) + each.get("cacheCreationInputTokens", 0)
            for each in models
        )
        outputs = sum(each.get("outputTokens", 0) for each in models)
        spent = Spent(
            max(round(cost - self.cost_usd, 9), 0.0),
            max(inputs - self.input_tokens, 0),
            max(outputs - self.output_tokens, 0),
            turns,
        )
        self.cost_usd, self.input_tokens, self.output_tokens = cost, inputs, outputs
        return spent


def ending(result: ResultMessage, error: str | None, meter: ClaudeMeter) -> TurnEnd:
    """Return the turn end for a result; `error` is Claude Code's label for the last failed request."""
    spent = meter.spend(result.total_cost_usd, result.model_usage, result.num_turns)
    runtime = result.session_id
    if result.terminal_reason in _INTERRUPTED:
        return TurnEnd("interrupted", runtime, spent)
    if result.subtype in _LIMITS:
        return TurnEnd("limit", runtime, spent, failure("runner.limit", _LIMITS[result.subtype]))
    if not result.is_error:
        return TurnEnd("completed", runtime, spent)
    words = "; ".join(result.errors or ()) or result.result or result.subtype
    return TurnEnd("failed", runtime, spent, _of_api(error, result.api_error_status, words))


def together(ends: Sequence[TurnEnd], *, is_alive: bool) -> TurnEnd:
    """Merge the ends of a turn with several results: the last one with the total usage."""
    spent = [end.spent for end in ends]
    total = Spent(
        sum(each.cost_usd for each in spent),
        sum(each.input_tokens for each in spent),
        sum(each.output_tokens for each in spent),
        sum(each.turns for each in spent),
    )
    return replace(ends[-1], spent=total, is_alive=is_alive)


def error_of(message: AssistantMessage) -> str | None:
    """Return Claude Code's label for a failure in this message, except for sub-agents."""
    return message.error if message.parent_tool_use_id is None else None


def retrying(data: JsonObject) -> Failure:
    """Return the failure of a request that is being retried."""
    failed = _of_api(data.get("error"), data.get("error_status"), "")
    again = f"Retrying, attempt {data.get('attempt', 1)} of {data.get('max_retries', 1)}."
    return Failure(failed.code, f"{failed.message} {again}")


def failure(code: str, message: str) -> Failure:
    """Return a failure with the code's default hint."""
    return Failure(code, message, CODES[code].hint)


def _of_api(error: Json, status: Json, words: str) -> Failure:
    code = _ERRORS.get(str(error), "runner.failed")
    if status is None:
        code = _WITHOUT_STATUS.get(code, code)
    meaning = CODES[code].meaning
    return failure(code, f"{meaning} Claude Code says: {words}" if words else meaning)
