"""The sessions' interface to budgets, which `credits` implements."""

from typing import Protocol

from toolcrib.model.sessions import Failure, Session, Spent


class BudgetKeeper(Protocol):
    """Checks budgets before turns and calls, and records usage."""

    async def exhausted(self, session: Session) -> Failure | None:
        """Return the reason why a turn must not start, or None."""
        ...

    def call(self, session: Session) -> str | None:
        """Count a call that is about to be made; return the reason if the budget forbids it."""
        ...

    async def charge(self, session: Session, spent: Spent) -> Failure | None:
        """Record a turn's usage; return a failure if calls were refused during the turn."""
        ...
