"""How an agent's turns end: completed, interrupted, at a limit, or failed for a reason that a person can act on.

Decided only by machine-readable values (stop reason, error code), never by an agent's prose.
"""

from dataclasses import dataclass
from typing import Final

from acp import RequestError

from toolcrib.model.errors import CODES
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.sessions import Failure, Spent, TurnEnd

AUTH_REQUIRED: Final = -32000
_LIMITS: Final = {
    "max_tokens": "The answer reached the token limit of the model.",
    "max_turn_requests": "The turn limit for one message is reached.",
}
_KINDS: Final = {
    "authentication_failed": "runner.key",
    "billing_error": "runner.credit",
    "rate_limit": "runner.rate",
    "server_error": "runner.overloaded",
    "overloaded": "runner.overloaded",
    "model_not_found": "runner.model",
}
"""The API failures that Claude Code's adapter reports in addition to the protocol."""


@dataclass(slots=True)
class AcpMeter:
    """Tracks a conversation's cost. Agents report totals; for a resumed one, the first report is the baseline."""

    total: float | None = 0.0
    turn: float = 0.0

    def take(self, update: JsonObject) -> None:
        """Process an update; only amounts in US dollars count."""
        cost: Json = update.get("cost")
        if update.get("sessionUpdate") != "usage_update" or not is_object(cost) or cost.get("currency") != "USD":
            return
        amount = float(cost.get("amount") or 0.0)
        if self.total is not None:
            self.turn += max(amount - self.total, 0.0)
        self.total = amount

    def spent(self, usage: Json) -> Spent:
        """Return the usage of the turn that ends now, and reset it."""
        cost, self.turn = round(self.turn, 9), 0.0
        counted: JsonObject = usage if is_object(usage) else {}
        inputs = ("inputTokens", "cachedReadTokens", "cachedWriteTokens")
        return Spent(cost, sum(int(counted.get(key) or 0) for key in inputs), int(counted.get("outputTokens") or 0), 1)


def ending(answer: JsonObject, runtime: str, meter: AcpMeter) -> TurnEnd:
    """Return the turn end for the response to a prompt."""
    spent = meter.spent(answer.get("usage"))
    reason: Json = answer.get("stopReason")
    if reason == "cancelled":
        return TurnEnd("interrupted", runtime, spent)
    if reason in _LIMITS:
        return TurnEnd("limit", runtime, spent, failure("runner.limit", _LIMITS[reason]))
    if reason == "refusal":
        return TurnEnd("failed", runtime, spent, failure("runner.failed", "The model refused to answer."))
    return TurnEnd("completed", runtime, spent)


def refused(name: str, error: RequestError) -> Failure:
    """Return the failure for a protocol error."""
    data: Json = error.data
    kind = str(data.get("errorKind")) if is_object(data) else ""
    if error.code == AUTH_REQUIRED:
        message = f"The agent {name} is not signed in: {error}"
        return Failure("runner.login", message, f"Sign in with the agent's own program, or set its key, for {name}.")
    return failure(_KINDS.get(kind, "runner.failed"), f"The agent {name} failed: {error}")


def failure(code: str, message: str) -> Failure:
    """Return a failure with the code's default hint."""
    return Failure(code, message, CODES[code].hint)
