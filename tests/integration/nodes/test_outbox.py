"""The outbox: all nodes number events alike, without gap or repeat, whatever fails in between."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from deadlines import stretched
from integration.gate.approvals.requests import OWNER, approval_request, open_approvals
from integration.store.databases import Server, fetch_rows
from toolcrib.base.feed import Feed
from toolcrib.gate.approvals import approvals
from toolcrib.model.errors import NotFound
from toolcrib.model.events import Event
from toolcrib.nodes.outbox import Outbox
from toolcrib.nodes.signals import Signals
from toolcrib.store.engine import open_store

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def node(url: str, name: str, *, capacity: int = 10_000) -> AsyncGenerator[Feed]:
    """Run the feed of a node."""
    feed = Feed(capacity=capacity)
    async with open_store(url) as store, Signals(store, name) as signals, Outbox(store, feed, signals, name):
        yield feed


async def take(feed: Feed, count: int, after: int | None = None) -> list[Event]:
    """Return the next events."""
    seen: list[Event] = []
    with anyio.fail_after(stretched(30)):
        async for event in feed.follow(await feed.reach(after)):
            seen.append(event)
            if len(seen) == count:
                break
    return seen


async def test_all_nodes_follow_the_same_events_under_the_same_numbers(postgres_url: str) -> None:
    async with node(postgres_url, "a") as a, node(postgres_url, "b") as b:
        start = a.last
        assert b.last == start
        received_from: list[str] = []
        b.listen(lambda event: received_from.append(event.data["from"]), "remote")
        for number in range(20):
            a.publish("notice", {"from": "a", "number": number})
            b.publish("notice", {"from": "b", "number": number})
        on_a, on_b = await take(a, 40, start), await take(b, 40, start)
        assert on_a == on_b
        assert [event.seq for event in on_a] == list(range(start + 1, start + 41))
        for name in "ab":
            assert [event.data["number"] for event in on_a if event.data["from"] == name] == list(range(20))
        assert received_from == ["a"] * 20


async def test_follower_resumes_on_another_node_which_is_behind_or_started_later(postgres_url: str) -> None:
    async with node(postgres_url, "a") as a:
        start = a.last
        for number in range(5):
            a.publish("notice", {"number": number})
        seen = await take(a, 3, start)
        async with node(postgres_url, "b") as b:
            assert [event.data["number"] for event in await take(b, 2, seen[-1].seq)] == [3, 4]
            a.publish("notice", {"number": 5})
            newest = (await take(a, 6, start))[-1].seq
            assert await b.reach(newest) == newest  # b has not read it yet
            assert [event.data["number"] for event in await take(b, 6, 0)] == list(range(6))
            with pytest.raises(NotFound, match="no longer kept"):
                await b.reach(newest + 1)
            with pytest.raises(NotFound, match="no longer kept"):
                await b.reach(start - 1)


async def test_old_events_come_from_the_database(postgres_url: str) -> None:
    async with node(postgres_url, "a", capacity=3) as a:
        start = a.last
        for number in range(10):
            a.publish("notice", {"number": number})
        assert [event.data["number"] for event in await take(a, 10, start)] == list(range(10))


async def test_approval_resolved_on_two_nodes_is_one_event(postgres_url: str) -> None:
    async with node(postgres_url, "a") as a, node(postgres_url, "b") as b:
        start = a.last
        a.publish("approval_resolved", {"approvalId": "one", "decision": "approved"})
        b.publish("approval_resolved", {"approvalId": "one", "decision": "approved"})
        b.publish("notice", {})
        await take(b, 2, start)
        a.publish("notice", {})
        kinds = [event.kind for event in await take(a, 3, start)]
        assert sorted(kinds) == ["approval_resolved", "notice", "notice"]


async def test_events_published_during_a_database_outage_arrive_once(postgres: Server, postgres_url: str) -> None:
    async with node(postgres_url, "a") as a, node(postgres_url, "b") as b:
        start = a.last
        a.publish("notice", {"number": 0})
        await take(b, 1, start)
        await anyio.to_thread.run_sync(postgres.stop)
        for number in range(1, 10):
            a.publish("notice", {"number": number})
        await anyio.to_thread.run_sync(postgres.ensure_postgres_running)
        assert [event.data["number"] for event in await take(b, 10, start)] == list(range(10))
    assert len(fetch_rows(postgres_url, "SELECT seq FROM events")) == 10


async def test_approval_answered_on_another_node_continues_without_polling(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approvals, "_LOOK_EVERY", 3_600.0)
    async with (
        node(postgres_url, "a") as a,
        node(postgres_url, "b") as b,
        open_store(postgres_url) as on_a,
        open_store(postgres_url) as on_b,
        open_approvals(on_a, crib="a") as asker,
        open_approvals(on_b, crib="b") as answerer,
    ):
        answerer.approvals.listen(b.publish)
        a.listen(lambda event: asker.approvals.answered_elsewhere(), "remote")
        async with asker.approvals.open(approval_request()) as pending:
            await answerer.approvals.answer(pending.approval.id, "approve", by=OWNER)
            with anyio.fail_after(30):
                assert (await asker.approvals.wait(pending)).approved


async def test_answer_on_another_node_is_signalled_before_its_event(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approvals, "_LOOK_EVERY", 3_600.0)
    async with (
        open_store(postgres_url) as on_a,
        open_store(postgres_url) as on_b,
        open_approvals(on_a, crib="a") as asker,
        open_approvals(on_b, crib="b", signal=lambda: asker.approvals.answered_elsewhere()) as answerer,
        asker.approvals.open(approval_request()) as pending,
    ):
        await answerer.approvals.answer(pending.approval.id, "approve", by=OWNER)
        with anyio.fail_after(30):
            assert (await asker.approvals.wait(pending)).approved
