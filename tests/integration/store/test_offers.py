"""Stored offers of servers: the latest per key, up to a limit."""

from datetime import UTC, datetime

import pytest

from toolcrib.store import offers
from toolcrib.store.engine import open_store
from toolcrib.store.offers import load_offers, save_offers

pytestmark = pytest.mark.anyio


async def test_saved_offer_replaces_the_previous_one_and_survives_a_restart(database: str) -> None:
    async with open_store(database) as store:
        assert await load_offers(store) == {}
        await save_offers(store, {"one": b"first"})
        await save_offers(store, {"two": b"\x00\xff"})
        await save_offers(store, {"one": b"second"})
    async with open_store(database) as store:
        assert await load_offers(store) == {"one": b"second", "two": b"\x00\xff"}


async def test_oldest_offers_are_removed_beyond_the_limit(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offers, "KEPT", 2)
    async with open_store(database) as store:
        for day in (3, 1, 2):
            await save_offers(store, {f"of day {day}": b"x"}, datetime(2026, 1, day, tzinfo=UTC))
        assert set(await load_offers(store)) == {"of day 2", "of day 3"}
