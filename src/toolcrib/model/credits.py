"""Credits: budgets, grants and spending of agents, in three units: turns, tool calls, US dollars."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from toolcrib.model.json import Json, JsonObject

EntryKind = Literal["grant", "spent"]
DEFAULT = "*"
"""Key of the default budget, for agents without their own."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """An amount of each unit."""

    turns: int = 0
    calls: int = 0
    usd: float = 0.0

    def __add__(self, other: "Amounts") -> "Amounts":
        return Amounts(self.turns + other.turns, self.calls + other.calls, round(self.usd + other.usd, 9))

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        return {"turns": self.turns, "calls": self.calls, "usd": self.usd}


@dataclass(frozen=True, slots=True)
class Budget:
    """The total budget of an agent. None means unlimited."""

    turns: int | None = None
    calls: int | None = None
    usd: float | None = None

    def to_json(self) -> JsonObject:
        """Return the public shape; null means unlimited."""
        return {"turns": self.turns, "calls": self.calls, "usd": self.usd}


@dataclass(frozen=True, slots=True)
class CreditBalance:
    """Budget of an agent, additional grants, and spending."""

    agent: str
    budget: Budget
    granted: Amounts
    spent: Amounts

    def left(self) -> Budget:
        """Return the remaining amount of each limited unit."""
        budget, granted, spent = self.budget, self.granted, self.spent
        return Budget(
            None if budget.turns is None else budget.turns + granted.turns - spent.turns,
            None if budget.calls is None else budget.calls + granted.calls - spent.calls,
            None if budget.usd is None else round(budget.usd + granted.usd - spent.usd, 9),
        )

    def exhausted(self) -> tuple[str, ...]:
        """Return the units that are used up."""
        left = self.left()
        units: Mapping[str, float | None] = {"turns": left.turns, "calls": left.calls, "usd": left.usd}
        return tuple(unit for unit, amount in units.items() if amount is not None and amount <= 0)

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        return {
            "agentId": self.agent,
            "budget": self.budget.to_json(),
            "granted": self.granted.to_json(),
            "spent": self.spent.to_json(),
            "left": self.left().to_json(),
            "exhausted": list(self.exhausted()),
        }


@dataclass(frozen=True, slots=True)
class CreditEntry:
    """One row of the ledger. `by` is the grantor; for spending, the agent itself."""

    id: str
    agent: str
    at: datetime
    kind: EntryKind
    amounts: Amounts
    by: str
    session: str | None = None
    reason: str | None = None

    def to_json(self) -> JsonObject:
        """Return the public shape, without absent fields."""
        shape: JsonObject = {
            "at": self.at.isoformat(timespec="milliseconds"),
            "kind": self.kind,
            **self.amounts.to_json(),
            "by": self.by,
        }
        optional: Mapping[str, Json] = {"sessionId": self.session, "reason": self.reason}
        return shape | {name: value for name, value in optional.items() if value is not None}
