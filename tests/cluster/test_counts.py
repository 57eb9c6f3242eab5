"""Counts across nodes: budgets of agents, and messages between agents."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from cluster.cribs import crib_on
from toolcrib import Crib
from toolcrib.agents.credits import Budget, Credits
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.agents.zoo.check import parse
from toolcrib.agents.zoo.input import AgentInput
from toolcrib.builtin.crew.messages import MOST_MESSAGES, Letter, Messenger
from toolcrib.model.errors import Conflict, Denied, ToolcribError
from toolcrib.model.principals import Principal
from toolcrib.model.sessions import Session, Spent
from toolcrib.nodes.shared_counts import SharedCounts
from toolcrib.store.engine import open_store
from toolcrib.tools import Context

pytestmark = pytest.mark.anyio

OWNER = Principal("owner", "owner", "web")
NOW = datetime.now(UTC)


async def test_calls_of_turns_in_flight_count_towards_a_budget_on_every_node(postgres_url: str) -> None:
    first_session, second_session = (Session(id, "api", "default", "/", NOW, NOW, agent="cook") for id in "ab")
    async with open_store(postgres_url) as one, open_store(postgres_url) as other:
        first, second = Credits(one), Credits(other)
        await first.configure("cook", Budget(calls=3), by=OWNER)
        assert await second.exhausted(second_session) is None
        assert [await first.call(first_session), await second.call(second_session)] == [None, None]
        assert await first.call(first_session) is None
        for credits, session in ((first, first_session), (second, second_session)):
            assert "used up its budget of tool calls" in str(await credits.call(session))
            assert (await credits.balance("cook")).spent.calls == 3
        await first.charge(first_session, Spent(turns=1))
        assert (await second.balance("cook")).spent.calls == 3, "calls on the ledger do not count twice"
        assert await second.call(second_session) is not None
        await first.configure("cook", Budget(calls=4), by=OWNER)
        assert await second.call(second_session) is None, "a budget changed on one node binds at the next call"
        await second.charge(second_session, Spent(turns=1))
        assert await one.read(lambda connection: connection.exec_driver_sql("SELECT count(*) FROM usage").scalar()) == 0


async def test_messages_receivers_and_duplicates_count_on_every_node(postgres_url: str, tmp_path: Path) -> None:
    async with crib_on(postgres_url, tmp_path / "a") as one, crib_on(postgres_url, tmp_path / "b") as other:
        for name in ("mate", "cook", "boy"):
            await one.zoo.create(parse(AgentInput, {"id": name, "name": name, "systemPrompt": "x"}), by=OWNER.name)
        await other.zoo.refresh()
        session = await one.sessions.create(NewSession("api"))
        first, second = messenger(one), messenger(other)
        context = Context(session.principal, "1")

        async def send(node: Messenger, to: str, text: str) -> str:
            try:
                return (await node.send(context, Letter(to, f"{text} [[script:text]]")))["answer"]
            except ToolcribError as error:
                return error.code

        assert await send(first, "mate", "one") == "done"
        with pytest.raises(Conflict, match="duplicate"):
            await second.send(context, Letter("mate", "one [[script:text]]"))
        assert await send(second, "cook", "two") == "done"
        assert await send(first, "boy", "three") == "crew.limit", "two agents were asked, on different nodes"
        for number in range(2, MOST_MESSAGES):
            assert await send((first, second)[number % 2], "mate", str(number)) == "done"
        with pytest.raises(Denied, match="Message limit reached"):
            await second.send(context, Letter("mate", "last [[script:text]]"))


def messenger(crib: Crib) -> Messenger:
    """Return the messenger of a node."""
    return Messenger(crib.sessions, crib.zoo, counts=SharedCounts(crib.store))
