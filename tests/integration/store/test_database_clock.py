"""The clock of the database is used, whatever the clock of the machine shows."""

from datetime import UTC, datetime

import pytest

from integration.store.databases import fetch_rows
from toolcrib.nodes.database_clock import DatabaseClock
from toolcrib.store.engine import open_store

pytestmark = pytest.mark.anyio


async def test_clock_follows_the_time_of_the_database(postgres_url: str) -> None:
    seconds = 5_000_000.0
    async with open_store(postgres_url) as store:
        clock = DatabaseClock(store, lambda: seconds)
        await clock.synchronise()
        shown = clock.now()
        seconds += 60
        assert (clock.now() - shown).total_seconds() == 60
    [(now,)] = fetch_rows(postgres_url, "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS FLOAT)")
    assert 0 <= (datetime.fromtimestamp(now, UTC) - shown).total_seconds() < 60
