"""Leases: one holder at a time, by the clock of the database."""

import pytest

from integration.store.databases import run
from toolcrib.store.engine import open_store
from toolcrib.store.leases import end_lease, lease_holder, take_lease

pytestmark = pytest.mark.anyio


async def test_lease_has_one_holder_until_it_is_released_or_ends(postgres_url: str) -> None:
    async with open_store(postgres_url) as store, open_store(postgres_url) as other:
        assert await take_lease(store, "checkpoints", "a", 60)
        assert await take_lease(store, "checkpoints", "a", 60)
        assert not await take_lease(other, "checkpoints", "b", 60)
        assert await lease_holder(other, "checkpoints") == "a"
        await end_lease(other, "checkpoints", "b")
        assert not await take_lease(other, "checkpoints", "b", 60)
        await end_lease(store, "checkpoints", "a")
        assert await take_lease(other, "checkpoints", "b", 60)
        run(postgres_url, "UPDATE leases SET until = until - 61")
        assert await lease_holder(other, "checkpoints") is None
        assert await take_lease(store, "checkpoints", "a", 60)
