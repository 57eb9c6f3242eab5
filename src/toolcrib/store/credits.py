"""Budgets and the ledger of credits, as rows. The ledger is append-only: an agent's balance is its sum."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select

from toolcrib.model.credits import DEFAULT, Amounts, Budget, CreditBalance, CreditEntry
from toolcrib.store.audit import moment
from toolcrib.store.engine import Store
from toolcrib.store.schema import credit_budgets, credit_entries


async def load_standing(store: Store, agent: str) -> CreditBalance:
    """Return the balance of an agent."""

    def read(connection: Connection) -> CreditBalance:
        sums = select(
            credit_entries.c.kind,
            func.sum(credit_entries.c.turns),
            func.sum(credit_entries.c.calls),
            func.sum(credit_entries.c.usd),
        )
        of_agent = sums.where(credit_entries.c.agent == agent).group_by(credit_entries.c.kind)
        kinds = {row[0]: Amounts(int(row[1]), int(row[2]), round(row[3], 9)) for row in connection.execute(of_agent)}
        wanted = select(credit_budgets).where(credit_budgets.c.agent.in_((agent, DEFAULT)))
        budgets = {row.agent: _budget(row) for row in connection.execute(wanted)}
        budget = budgets.get(agent) or budgets.get(DEFAULT) or Budget()
        return CreditBalance(agent, budget, kinds.get("grant", Amounts()), kinds.get("spent", Amounts()))

    return await store.read(read)


async def load_budgets(store: Store) -> dict[str, Budget]:
    """Return all budgets by agent, with the default under `*`."""
    query = select(credit_budgets).order_by(credit_budgets.c.agent)
    rows = await store.read(lambda connection: connection.execute(query).all())
    return {row.agent: _budget(row) for row in rows}


async def save_budget(store: Store, agent: str, budget: Budget, *, by: str, at: datetime) -> None:
    """Store a budget, replacing the previous one."""
    values = {"agent": agent, **budget.to_json(), "set_at": moment(at), "set_by": by}
    await store.write(
        delete(credit_budgets).where(credit_budgets.c.agent == agent), insert(credit_budgets).values(**values)
    )


async def add_entry(store: Store, entry: CreditEntry) -> None:
    """Add a row to the ledger."""
    values = {
        "id": entry.id,
        "agent": entry.agent,
        "at": moment(entry.at),
        "kind": entry.kind,
        **entry.amounts.to_json(),
        "session": entry.session,
        "by": entry.by,
        "reason": entry.reason,
    }
    await store.write(insert(credit_entries).values(**values))


async def load_entries(store: Store, agent: str, limit: int) -> list[CreditEntry]:
    """Return the newest rows of an agent's ledger."""
    query = (
        select(credit_entries)
        .where(credit_entries.c.agent == agent)
        .order_by(credit_entries.c.at.desc(), credit_entries.c.id)
        .limit(limit)
    )
    return [_entry(row) for row in await store.read(lambda connection: connection.execute(query).all())]


def _budget(row: Row[*tuple[Any, ...]]) -> Budget:
    return Budget(row.turns, row.calls, row.usd)


def _entry(row: Row[*tuple[Any, ...]]) -> CreditEntry:
    return CreditEntry(
        id=row.id,
        agent=row.agent,
        at=datetime.fromisoformat(row.at).astimezone(UTC),
        kind=row.kind,
        amounts=Amounts(row.turns, row.calls, row.usd),
        by=row.by,
        session=row.session,
        reason=row.reason,
    )
