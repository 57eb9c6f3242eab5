"""Concurrent changes of a schedule are applied one after the other."""

from dataclasses import replace
from datetime import UTC, datetime

import anyio
import pytest

from toolcrib.model.schedules import Cadence, Schedule
from toolcrib.store.engine import open_store
from toolcrib.store.schedules import load_schedule, revise_schedule, save_schedule

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NIGHTLY = Schedule("a1", "nightly", "reviewer", "Look.", "", Cadence(cron="0 3 * * *", timezone="UTC"), NOW)


def one_more(schedule: Schedule) -> Schedule:
    return replace(schedule, failures=schedule.failures + 1)


async def test_concurrent_changes_of_a_schedule_are_all_applied(database: str) -> None:
    async with open_store(database) as store:
        await save_schedule(store, NIGHTLY)
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(revise_schedule, store, "a1", one_more)
        assert await load_schedule(store, "a1") == replace(NIGHTLY, failures=10)


async def test_missing_schedule_is_not_changed(database: str) -> None:
    async with open_store(database) as store:
        assert await revise_schedule(store, "a1", one_more) is None
