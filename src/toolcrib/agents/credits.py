"""Credits: a ledger per agent, and the budgets its sessions must respect.

A turn's usage, including tool calls, is added to the ledger when the turn ends. Until then calls are counted in memory,
or in the database if nodes share one, so a call over budget is refused immediately in every session of the agent. Usage
that could not be stored is added with the next turn.

Must never remove anything from the ledger, and never let an agent raise its own budget.
"""

import logging
import math
import secrets
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from toolcrib.model.credits import DEFAULT, Amounts, Budget, CreditBalance, CreditEntry, EntryKind
from toolcrib.model.errors import Denied, InvalidRequest, Unavailable
from toolcrib.model.principals import Principal
from toolcrib.model.sessions import Failure, Session, Spent
from toolcrib.nodes.shared_counts import SharedCounts
from toolcrib.store.credits import add_entry, load_budgets, load_entries, load_standing, save_budget
from toolcrib.store.engine import Store

MOST_LISTED: Final = 200
LARGEST: Final = 1_000_000_000
_HINT: Final = "Finish now and report what is left to do. The owner can grant more."
_IN_WORDS: Final = {"turns": "turns", "calls": "tool calls", "usd": "money"}

logger = logging.getLogger(__name__)

__all__ = ["DEFAULT", "Amounts", "Budget", "Credits"]


class Credits:
    """The ledger of all agents; implements the sessions' `BudgetKeeper` protocol."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._shared = SharedCounts(store) if store.shared else None
        self._uses: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        """The shared counts of calls that are not on the ledger yet, by agent and session."""
        self._known: dict[str, CreditBalance] = {}
        self._unwritten: dict[str, Amounts] = {}
        self._calls: Counter[tuple[str, str]] = Counter()
        self._refused: set[str] = set()

    async def balance(self, agent: str) -> CreditBalance:
        """Return the agent's current balance, including usage that is not on the ledger yet."""
        self._known[agent] = await load_standing(self._store, agent)
        others = 0
        if self._shared is not None:
            total = await self._shared.total(_key(agent))
            others = int(total) - sum(len(uses) for (name, _), uses in self._uses.items() if name == agent)
        return self._now(self._known[agent], others)

    async def history(self, agent: str, limit: int) -> Sequence[CreditEntry]:
        """Return the newest entries of the agent's ledger."""
        return await load_entries(self._store, agent, min(max(limit, 1), MOST_LISTED))

    async def budgets(self) -> dict[str, Budget]:
        """Return all configured budgets by agent; `*` applies to every other agent."""
        return await load_budgets(self._store)

    async def grant(self, agent: str, amounts: Amounts, *, by: Principal, reason: str | None = None) -> CreditBalance:
        """Grant an agent credits beyond its budget. Raises `credits.invalid`, `credits.own`."""
        _check(amounts.to_json().values())
        if amounts == Amounts():
            raise InvalidRequest(
                "credits.invalid", "The grant has no amount.", "Give a number of turns, calls or US dollars."
            )
        if by.agent == agent:
            raise Denied("credits.own", f"Agent {agent!r} cannot grant credits to itself.")
        await self._add(agent, "grant", amounts, by.agent or by.name, by.session, reason)
        return await self.balance(agent)

    async def configure(
        self, agent: str, given: Budget, *, by: Principal, unlimited: Collection[str] = ()
    ) -> dict[str, Budget]:
        """Update the budget of an agent, or of `*`; units in `unlimited` become unlimited.

        Raises `credits.invalid`, and `credits.own` if the calling agent is itself subject to this budget.
        """
        amounts = {unit: amount for unit, amount in given.to_json().items() if amount is not None}
        _check(amounts.values())
        budgets = await self.budgets()
        if by.agent is not None and agent in (by.agent, by.agent if by.agent in budgets else DEFAULT):
            raise Denied("credits.own", f"Agent {by.agent!r} cannot change its own budget.")
        before = budgets.get(agent, Budget())
        after = replace(before, **amounts, **dict.fromkeys(unlimited))
        await save_budget(self._store, agent, after, by=by.agent or by.name, at=datetime.now(UTC))
        for known in tuple(self._known):
            await self.balance(known)  # the new budget also applies to turns in flight
        return {**budgets, agent: after}

    async def exhausted(self, session: Session) -> Failure | None:
        """Return the reason why the session must not start a turn, or None."""
        if session.agent is None:
            return None
        self._refused.discard(session.id)
        try:
            units = (await self.balance(session.agent)).exhausted()
        except Unavailable as error:  # fail closed: without a known balance the agent may use nothing
            return Failure(error.code, error.message, error.hint)
        return _failure(session.agent, units) if units else None

    async def call(self, session: Session) -> str | None:
        """Count a call that the session is about to make; return the reason if the budget forbids it.

        Raises `Unavailable` if nodes share the database and it does not respond.
        """
        if session.agent is None:
            return None
        if self._shared is not None:
            units = await self._exhausted_everywhere(self._shared, session.agent, session.id)
        else:
            known = self._known.get(session.agent)
            units = self._now(known).exhausted() if known is not None else ()
        if units:
            self._refused.add(session.id)
            return f"{_failure(session.agent, units).message} {_HINT}"
        self._calls[session.agent, session.id] += 1
        return None

    async def _exhausted_everywhere(self, counts: SharedCounts, agent: str, session: str) -> tuple[str, ...]:
        """Count a call for all nodes, before it is compared with the budget. Returns the units that are used up."""
        known = self._known[agent] = await load_standing(self._store, agent)
        if known.budget == Budget():
            return ()
        use, used = await counts.add(_key(agent), 1.0, None)
        unwritten = self._unwritten.get(agent, Amounts())
        units = replace(known, spent=known.spent + unwritten + Amounts(calls=int(used.amount) - 1)).exhausted()
        if units:
            await counts.take_back([use])
        else:
            self._uses[agent, session].append(use)
        return units

    async def charge(self, session: Session, spent: Spent) -> Failure | None:
        """Add a turn's usage to the ledger; return a failure if calls were refused during the turn."""
        agent = session.agent
        if agent is None:
            return None
        before = self._unwritten.pop(agent, Amounts())
        used = before + Amounts(spent.turns, self._calls.pop((agent, session.id), 0), spent.cost_usd)
        try:
            if used != Amounts():
                await self._add(agent, "spent", used, agent, session.id, None)
        except Unavailable as error:
            logger.warning("Could not store the usage of agent %s yet: %s", agent, error)
            self._unwritten[agent] = self._unwritten.get(agent, Amounts()) + used
        else:
            self._note(agent, used)
            await self._take_back(agent, session.id)
        known = self._known.get(agent)
        if session.id not in self._refused or known is None:
            return None
        self._refused.discard(session.id)
        return _failure(agent, self._now(known).exhausted() or ("calls",))

    async def _take_back(self, agent: str, session: str) -> None:
        """Uncount calls that are on the ledger now."""
        uses = self._uses.pop((agent, session), [])
        if self._shared is not None and uses:
            try:
                await self._shared.take_back(uses)
            except Unavailable as error:  # they count twice until then
                logger.warning("Calls of agent %s are still counted: %s", agent, error)
                self._uses[agent, session] += uses

    def _note(self, agent: str, used: Amounts) -> None:
        if agent in self._known:
            known = self._known[agent]
            self._known[agent] = replace(known, spent=known.spent + used)

    def _now(self, balance: CreditBalance, others: int = 0) -> CreditBalance:
        """Return the balance with the calls of turns in flight; `others` are those on other nodes."""
        calls = others + sum(count for (agent, _), count in self._calls.items() if agent == balance.agent)
        unwritten = self._unwritten.get(balance.agent, Amounts())
        return replace(balance, spent=balance.spent + unwritten + Amounts(calls=calls))

    async def _add(
        self, agent: str, kind: EntryKind, amounts: Amounts, by: str, session: str | None, reason: str | None
    ) -> None:
        entry = CreditEntry(secrets.token_hex(8), agent, datetime.now(UTC), kind, amounts, by, session, reason)
        await add_entry(self._store, entry)


def _key(agent: str) -> str:
    return f"calls {agent}"


def _failure(agent: str, units: Sequence[str]) -> Failure:
    used = " and ".join(_IN_WORDS[unit] for unit in units)
    hint = f"Grant more with crib_grant_credits, or raise the budget of {agent} with crib_credit_config."
    return Failure("credits.exhausted", f"Agent {agent!r} has used up its budget of {used}.", hint)


def _check(amounts: Collection[float]) -> None:
    if not all(math.isfinite(amount) and 0 <= amount <= LARGEST for amount in amounts):
        raise InvalidRequest("credits.invalid", f"Amounts must be between 0 and {LARGEST}.")
