"""Batched appends to a log in PostgreSQL."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import psycopg
import pytest
from sqlalchemy import Select, func, insert, select

from integration.store.databases import fetch_rows
from integration.store.test_postgres import drop_connections
from toolcrib.model.errors import Unavailable
from toolcrib.store.batch import ConstraintError, Fence, Log, Row
from toolcrib.store.engine import Store, open_store
from toolcrib.store.schema import audit, audit_runs, names

pytestmark = pytest.mark.anyio

RUN = Fence("crib", "run")
_WRITERS = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'INSERT INTO audit ' || chr(37)"
_END_WAITING = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


class Numbers(Log[bytes]):
    """Numbered rows of the audit table, without a hash chain."""

    table = audit
    head: int = 0
    reads_policy_epoch = True

    def rows(self, items: Sequence[bytes]) -> list[Row]:
        first = self.head + 1
        self.head += len(items)
        made = enumerate(items, first)
        return [(number, "hash", "at", "intent", *[None] * 5, "naïve ☃", "allow", body) for number, body in made]

    def tail(self) -> Select[Any]:
        return select(func.max(audit.c.id))

    def resume(self, rows: Sequence[Row]) -> None:
        self.head = rows[0][0] or 0

    def committed(self) -> None:
        pass


@asynccontextmanager
async def open_numbers(url: str) -> AsyncGenerator[tuple[Store, Numbers]]:
    """Yield a store with a registered run, and a log."""
    async with open_store(url) as store:
        await store.write(insert(audit_runs).values(crib="crib", run="run", start=0))
        yield store, Numbers()


async def test_rows_of_all_sizes_are_stored_unchanged(postgres_url: str) -> None:
    bodies = [b"", b"\x00\xff", *(b"%d" % number * 200_000 for number in range(40))]  # more than a socket buffers
    async with open_numbers(postgres_url) as (store, log):
        await store.append(log, b"first", RUN)
        assert await asyncio.gather(*(store.append(log, body, RUN) for body in bodies)) == list(range(2, 44))
        found = await store.read(lambda connection: connection.scalars(select(audit.c.body).order_by(audit.c.id)).all())
        assert found == [b"first", *bodies]
    assert fetch_rows(postgres_url, "SELECT DISTINCT tool FROM audit") == [("naïve ☃",)]


async def test_rows_and_other_writes_are_stored_in_order(postgres_url: str) -> None:
    async with open_numbers(postgres_url) as (store, log):
        for number in range(1, 20):
            row = store.append(log, b"body", RUN if number % 3 else None)
            if number % 4 == 0:
                await store.write(insert(names).values(form="f", name=f"{number}", server="s", tool=f"{number}"))
            assert await row == number
    assert fetch_rows(postgres_url, "SELECT count(*) FROM audit") == [(19,)]
    assert fetch_rows(postgres_url, "SELECT count(*) FROM names") == [(4,)]


async def test_row_with_a_lost_fence_is_refused_and_the_others_of_its_batch_are_stored(postgres_url: str) -> None:
    async with open_numbers(postgres_url) as (store, log):
        await store.append(log, b"before", RUN)
        rows = [
            store.append(log, b"a", RUN),
            store.append(log, b"b", Fence("crib", "old")),
            store.append(log, b"c", RUN),
        ]
        first, refused, last = await asyncio.gather(*rows, return_exceptions=True)
        assert (first, last) == (2, 3)
        assert isinstance(refused, ConstraintError)
        assert await store.append(log, b"after", RUN) == 4


async def test_change_of_permissions_is_seen_by_the_next_row(postgres_url: str) -> None:
    async with open_numbers(postgres_url) as (store, log):
        await store.append(log, b"before", RUN)
        with psycopg.connect(postgres_url, autocommit=True) as other:
            other.execute("UPDATE epochs SET value = 4321 WHERE name = 'policy'")
        await store.append(log, b"after", RUN)
        assert store.policy_epoch == 4321


async def test_connection_lost_between_rows_costs_no_row(postgres_url: str) -> None:
    async with open_numbers(postgres_url) as (store, log):
        await store.append(log, b"before", RUN)
        await store.append(log, b"before", RUN)
        drop_connections(postgres_url)
        with anyio.fail_after(20):
            while fetch_rows(postgres_url, _WRITERS):  # noqa: ASYNC110 nothing announces it
                await anyio.sleep(0.02)
        for _ in range(5):  # turns of the loop, to read what the server sent last
            await anyio.lowlevel.checkpoint()
        assert await store.append(log, b"after", RUN) == 3


async def test_rows_in_flight_on_a_lost_connection_fail_and_later_ones_are_stored(postgres_url: str) -> None:
    async with open_numbers(postgres_url) as (store, log):
        await store.append(log, b"before", RUN)
        with psycopg.connect(postgres_url) as other:
            other.execute("LOCK TABLE audit IN ACCESS EXCLUSIVE MODE")
            row = store.append(log, b"lost", RUN)
            with anyio.fail_after(20):
                while not fetch_rows(postgres_url, _END_WAITING):  # noqa: ASYNC110 nothing announces it
                    await anyio.sleep(0.02)
            with pytest.raises(Unavailable):
                await row
        with anyio.fail_after(20):
            assert await store.append(log, b"after", RUN) == 2


async def test_unanswered_row_fails_at_its_timeout(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.store.postgres._BATCH_LIMIT", 1.0)
    async with open_numbers(postgres_url) as (store, log):
        await store.append(log, b"before", RUN)
        with psycopg.connect(postgres_url) as other:
            other.execute("LOCK TABLE audit IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(Unavailable, match="1 s"), anyio.fail_after(20):
                await store.append(log, b"late", RUN)
        await store.append(log, b"after", RUN)
    assert fetch_rows(postgres_url, "SELECT count(*) FROM audit WHERE body = 'after'") == [(1,)]


async def test_later_rows_of_callers_join_the_waiting_batch(postgres_url: str) -> None:
    async with open_numbers(postgres_url) as (store, log):
        await store.append(log, b"first", RUN)

        async def call() -> None:
            await store.append(log, b"intent", RUN)
            await store.append(log, b"outcome", RUN)

        async with anyio.create_task_group() as callers:
            for _ in range(2):
                callers.start_soon(call)
            for _ in range(3):  # the rows of these callers are in flight
                await anyio.lowlevel.checkpoint()
            for _ in range(2):
                callers.start_soon(call)
    sizes = fetch_rows(postgres_url, "SELECT count(*) FROM audit WHERE id > 1 GROUP BY xmin ORDER BY min(id)")
    assert sizes == [(2,), (4,), (2,)]


async def test_failure_of_a_row_is_reported_after_its_caller_was_cancelled(postgres_url: str) -> None:
    failures: list[Exception] = []
    async with open_numbers(postgres_url) as (store, log):
        await store.append(log, b"first", RUN)
        cancelled = store.append(log, b"body", Fence("crib", "another run"), failures.append)
        kept = store.append(log, b"body", RUN, failures.append)
        cancelled.cancel()
        assert await kept == 2
    assert [type(each) for each in failures] == [ConstraintError]
