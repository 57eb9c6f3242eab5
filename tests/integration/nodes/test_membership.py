"""Membership on one database: leases, epochs and addresses."""

import pytest

from integration.store.databases import run
from toolcrib.model.errors import NotFound
from toolcrib.model.nodes import LEASE_SECONDS
from toolcrib.nodes.membership import Membership
from toolcrib.store.cluster_state import read_cluster_state
from toolcrib.store.engine import open_store

pytestmark = pytest.mark.anyio


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_nodes_of_one_database_see_each_other_until_they_leave(postgres_url: str) -> None:
    async with open_store(postgres_url) as store, Membership(store, "a") as a, open_store(postgres_url) as other:
        async with Membership(other, "b", load=lambda: 3) as b:
            b.announce("http://10.0.0.2:4242")
            await b.renew()
            assert [(node.id, node.epoch, node.load) for node in await a.alive()] == [("a", 1, 0), ("b", 2, 3)]
            assert await a.address_of("b") == "http://10.0.0.2:4242"
        assert [node.id for node in await a.all()] == ["a"]
        assert await a.address_of("b") is None


async def test_lease_that_was_not_renewed_ends_and_is_replaced_by_a_newer_one(postgres_url: str) -> None:
    clock, changes = Clock(), list[str]()
    async with open_store(postgres_url) as store, Membership(store, "a", clock=clock) as node:
        node.on_lost(lambda: changes.append("lost"))
        node.on_regained(lambda: changes.append("regained"))
        clock.now += LEASE_SECONDS - 0.1
        assert not node.lost
        clock.now += 0.1
        assert node.lost
        await node.renew()
        assert (node.lost, node.epoch, changes) == (False, 2, ["lost", "regained"])


async def test_lease_that_ended_by_the_clock_of_the_database_cannot_be_renewed(postgres_url: str) -> None:
    changes = list[str]()
    async with open_store(postgres_url) as store, Membership(store, "a") as node:
        node.on_lost(lambda: changes.append("lost"))
        run(postgres_url, "UPDATE nodes SET seen_at = seen_at - 11")
        assert [each.state for each in await node.all()] == ["dead"]
        await node.renew()
        assert (changes, node.epoch) == (["lost"], 2)
        assert [each.state for each in await node.all()] == ["alive"]


async def test_draining_callback_runs_once_and_the_node_stays_draining(postgres_url: str) -> None:
    changes = list[str]()
    async with open_store(postgres_url) as store, Membership(store, "a") as node:
        node.on_draining(lambda: changes.append("draining"))
        assert (await node.drain("a")).state == "draining"
        with pytest.raises(NotFound, match="unknown"):
            await node.drain("unknown")
        connection = store.side_connection()
        for _ in range(2):
            node.on_poll(await read_cluster_state(connection))
        await connection.aclose()
        run(postgres_url, "UPDATE nodes SET seen_at = seen_at - 11")
        await node.renew()
        assert [each.state for each in await node.all()] == ["draining"]
    assert changes == ["draining"]


async def test_crib_on_sqlite_is_the_only_node_and_its_lease_does_not_end(sqlite_url: str) -> None:
    clock = Clock()
    for epoch in (1, 2):
        async with open_store(sqlite_url) as store, Membership(store, "a", clock=clock) as node:
            clock.now += 1_000
            assert (node.lost, node.epoch) == (False, epoch)
            assert [(each.id, each.state) for each in await node.alive()] == [("a", "alive")]
