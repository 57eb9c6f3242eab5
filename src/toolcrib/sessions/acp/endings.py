"""How turns of an agent end: completed, interrupted, at a limit, or failed for a reason that a person can act on.

Above: `conversation`. Below: the protocol's answers. What is told is decided by the words agents have for machines (the
reason to stop, the code of an error), never by their sentences.
"""

from dataclasses import dataclass
from typing import Final

from acp import RequestError

from toolcrib.errors import CODES
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.model.sessions import Failure, Spent, TurnEnd

AUTH_REQUIRED: Final = -32000
_LIMITS: Final = {
    "max_tokens": "The answer became longer than the model may say.",
    "max_turn_requests": "The model took as many turns as it may for one message.",
}
_KINDS: Final = {
    "authentication_failed": "runner.key",
    "billing_error": "runner.credit",
    "rate_limit": "runner.rate",
    "server_error": "runner.overloaded",
    "overloaded": "runner.overloaded",
    "model_not_found": "runner.model",
}
"""What Claude Code's adapter calls failures of the API, beside the protocol."""


@dataclass(slots=True)
class Meter:
    """What a conversation has cost. Agents count from its beginning; where that was elsewhere, from the first word."""

    total: float | None = 0.0
    turn: float = 0.0

    def take(self, update: JsonObject) -> None:
        """Take up an update; only amounts of US dollars count."""
        cost: Json = update.get("cost")
        if update.get("sessionUpdate") != "usage_update" or not is_object(cost) or cost.get("currency") != "USD":
            return
        amount = float(cost.get("amount") or 0.0)
        if self.total is not None:
            self.turn += max(amount - self.total, 0.0)
        self.total = amount

    def spent(self, usage: Json) -> Spent:
        """What the turn has used that ends now."""
        cost, self.turn = round(self.turn, 9), 0.0
        counted: JsonObject = usage if is_object(usage) else {}
        inputs = ("inputTokens", "cachedReadTokens", "cachedWriteTokens")
        return Spent(cost, sum(int(counted.get(key) or 0) for key in inputs), int(counted.get("outputTokens") or 0), 1)


def ending(answer: JsonObject, runtime: str, meter: Meter) -> TurnEnd:
    """The end that an answer to a prompt stands for."""
    spent = meter.spent(answer.get("usage"))
    reason: Json = answer.get("stopReason")
    if reason == "cancelled":
        return TurnEnd("interrupted", runtime, spent)
    if reason in _LIMITS:
        return TurnEnd("limit", runtime, spent, failure("runner.limit", _LIMITS[reason]))
    if reason == "refusal":
        return TurnEnd("failed", runtime, spent, failure("runner.failed", "The model refuses to answer this."))
    return TurnEnd("completed", runtime, spent)


def refused(name: str, error: RequestError) -> Failure:
    """What an error of the protocol means for a person."""
    data: Json = error.data
    kind = str(data.get("errorKind")) if is_object(data) else ""
    if error.code == AUTH_REQUIRED:
        message = f"The agent {name} is not signed in: {error}"
        return Failure("runner.login", message, f"Sign in with the agent's own program, or set its key, for {name}.")
    return failure(_KINDS.get(kind, "runner.failed"), f"The agent {name} failed: {error}")


def failure(code: str, message: str) -> Failure:
    """A failure with the next step of the table."""
    return Failure(code, message, CODES[code].hint)
