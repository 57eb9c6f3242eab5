"""Credits on both databases: an append-only ledger, budgets, and usage counted before it is stored."""

import sqlite3
from collections.abc import AsyncGenerator
from datetime import UTC, datetime

import pytest

from integration.store.databases import fetch_rows
from toolcrib.agents.credits import DEFAULT, Amounts, Budget, Credits
from toolcrib.model.errors import Denied, InvalidRequest
from toolcrib.model.principals import Principal
from toolcrib.model.sessions import Session, Spent
from toolcrib.store.engine import open_store

pytestmark = pytest.mark.anyio

OWNER = Principal("owner", "owner", "web")
NOW = datetime.now(UTC)


def session(agent: str | None = "cook", id: str = "s1") -> Session:
    return Session(id, "api", "default", "/", NOW, NOW, agent=agent)


@pytest.fixture
async def credits(database: str) -> AsyncGenerator[Credits]:
    async with open_store(database) as store:
        yield Credits(store)


async def test_agent_without_a_budget_is_unlimited_and_has_a_ledger(credits: Credits) -> None:
    assert await credits.exhausted(session()) is None
    assert await credits.call(session()) is None
    assert await credits.charge(session(), Spent(0.25, 10, 5, 2)) is None
    balance = (await credits.balance("cook")).to_json()
    assert balance["spent"] == {"turns": 2, "calls": 1, "usd": 0.25}
    assert balance["left"] == {"turns": None, "calls": None, "usd": None}
    (entry,) = await credits.history("cook", 10)
    assert (entry.kind, entry.session, entry.amounts) == ("spent", "s1", Amounts(2, 1, 0.25))


@pytest.mark.parametrize(
    ("budget", "spent", "unit"),
    [
        (Budget(turns=2), Spent(turns=2), "turns"),
        (Budget(usd=0.3), Spent(cost_usd=0.3), "money"),
        (Budget(calls=0), Spent(), "tool calls"),
    ],
)
async def test_exhausted_budget_stops_further_turns(credits: Credits, budget: Budget, spent: Spent, unit: str) -> None:
    await credits.configure("cook", budget, by=OWNER)
    await credits.charge(session(), spent)
    failure = await credits.exhausted(session())
    assert failure is not None
    assert failure.code == "credits.exhausted"
    assert f"budget of {unit}" in failure.message
    assert failure.hint
    assert await credits.exhausted(session("mate")) is None
    assert await credits.exhausted(session(None)) is None


async def test_call_budget_is_shared_by_all_sessions_of_an_agent(credits: Credits) -> None:
    await credits.configure(DEFAULT, Budget(calls=2), by=OWNER)
    first, second = session(id="s1"), session(id="s2")
    assert await credits.exhausted(first) is None
    assert await credits.exhausted(second) is None
    assert [await credits.call(first), await credits.call(second)] == [None, None]
    refusal = await credits.call(second)
    assert refusal is not None
    assert "used up its budget of tool calls" in refusal
    assert await credits.charge(first, Spent(turns=1)) is None, "the first session was not refused a call"
    failure = await credits.charge(second, Spent(turns=1))
    assert failure is not None
    assert failure.code == "credits.exhausted"
    assert (await credits.balance("cook")).spent == Amounts(2, 2, 0.0), "a refused call costs nothing"


async def test_grant_applies_at_once_and_adds_to_the_budget(credits: Credits) -> None:
    await credits.configure("cook", Budget(calls=0), by=OWNER)
    assert await credits.exhausted(session()) is not None
    balance = await credits.grant("cook", Amounts(calls=1), by=OWNER, reason="storm")
    assert balance.left() == Budget(None, 1, None)
    assert await credits.call(session()) is None
    assert await credits.call(session()) is not None
    (entry,) = await credits.history("cook", 10)
    assert (entry.kind, entry.by, entry.reason) == ("grant", "owner", "storm")


async def test_only_given_budget_fields_change(credits: Credits) -> None:
    await credits.configure("cook", Budget(turns=5, usd=1.5), by=OWNER)
    found = await credits.configure("cook", Budget(calls=7), by=OWNER, unlimited=["turns"])
    assert found == {"cook": Budget(None, 7, 1.5)} == await credits.budgets()
    assert (await credits.balance("mate")).budget == Budget()


async def test_agent_cannot_raise_its_own_budget(credits: Credits) -> None:
    cook = Principal("session", "s", "api", agent="cook", session="s")
    for change in (
        credits.grant("cook", Amounts(turns=1), by=cook),
        credits.configure("cook", Budget(turns=1), by=cook),
        credits.configure(DEFAULT, Budget(turns=1), by=cook),
    ):
        with pytest.raises(Denied) as raised:
            await change
        assert raised.value.code == "credits.own"
    await credits.configure("cook", Budget(turns=1), by=OWNER)
    await credits.configure(DEFAULT, Budget(turns=9), by=cook)  # its own budget applies now
    await credits.grant("mate", Amounts(turns=1), by=cook)


@pytest.mark.parametrize("amounts", [Amounts(), Amounts(turns=-1), Amounts(usd=float("nan")), Amounts(calls=10**10)])
async def test_invalid_amount_is_refused(credits: Credits, amounts: Amounts) -> None:
    with pytest.raises(InvalidRequest) as raised:
        await credits.grant("cook", amounts, by=OWNER)
    assert raised.value.code == "credits.invalid"


async def test_ledger_survives_a_restart(database: str) -> None:
    async with open_store(database) as store:
        await Credits(store).configure("cook", Budget(turns=1), by=OWNER)
        await Credits(store).charge(session(), Spent(turns=1))
    async with open_store(database) as store:
        assert await Credits(store).exhausted(session()) is not None
    assert fetch_rows(database, "SELECT agent, kind, turns FROM credit_entries") == [("cook", "spent", 1)]


async def test_usage_that_could_not_be_stored_is_stored_with_the_next_turn(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.store.sqlite._PATIENCE", 0.1)
    async with open_store(sqlite_url) as store:
        credits = Credits(store)
        await credits.configure("cook", Budget(turns=5), by=OWNER)
        await credits.exhausted(session())
        other_connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
        other_connection.execute("BEGIN IMMEDIATE")
        await credits.charge(session(), Spent(turns=2))
        other_connection.execute("COMMIT")
        other_connection.close()
        assert (await credits.balance("cook")).spent.turns == 2
        await credits.charge(session(), Spent(turns=1))
        assert (await credits.balance("cook")).spent.turns == 3
    assert fetch_rows(sqlite_url, "SELECT turns FROM credit_entries") == [(3,)]
