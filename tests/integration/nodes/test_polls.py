"""What nodes notice with and without a signal, and what idle ones ask the database."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from integration.store.databases import fetch_rows, run
from toolcrib import Crib, Settings
from toolcrib.base.feed import Feed
from toolcrib.model.json import JsonObject
from toolcrib.nodes.jobs import Jobs
from toolcrib.nodes.membership import Membership
from toolcrib.nodes.outbox import Outbox
from toolcrib.nodes.signals import SPACING_SECONDS, Signals
from toolcrib.store.cluster_state import ClusterState
from toolcrib.store.engine import open_store
from toolcrib.testing.environments import bare_environment

pytestmark = pytest.mark.anyio

POLLS = 5
MOST_TRANSACTIONS = 6
"""Transactions of an idle node per poll. There were 18 when each part of a node polled for itself."""


@asynccontextmanager
async def working(url: str, name: str, done: anyio.Event) -> AsyncGenerator[Jobs]:
    """A node that runs jobs; `done` is set by the first one."""

    async def finish(_: JsonObject) -> None:
        done.set()

    async with open_store(url) as store, Membership(store, name) as membership, Signals(store, name) as signals:
        jobs = Jobs(store, membership, signals)
        jobs.handle("finish", finish)
        async with jobs:
            yield jobs


async def test_event_whose_notification_was_lost_arrives(postgres_url: str) -> None:
    feed, arrived = Feed(), anyio.Event()
    feed.listen(lambda _: arrived.set(), "remote")
    async with open_store(postgres_url) as store, Signals(store, "a") as signals, Outbox(store, feed, signals, "a"):
        run(
            postgres_url,
            "UPDATE epochs SET value = value + 1 WHERE name = 'events'",
            "INSERT INTO events (seq, at, kind, data, node, key)"
            " SELECT value, '', 'notice', '{}', 'b', 'b 1' FROM epochs WHERE name = 'events'",
        )
        with anyio.fail_after(10):
            await arrived.wait()


async def test_job_whose_notification_was_lost_is_run(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.nodes.jobs._FETCH_SECONDS", 3_600.0)
    done = anyio.Event()
    async with working(postgres_url, "a", done):
        run(postgres_url, "INSERT INTO procrastinate_jobs (queue_name, task_name) VALUES ('any', 'finish')")
        with anyio.fail_after(10):
            await done.wait()


async def test_job_for_another_node_is_run_without_waiting_for_a_poll(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.nodes.jobs._FETCH_SECONDS", 3_600.0)
    monkeypatch.setattr("toolcrib.nodes.signals.POLL_SECONDS", 3_600.0)
    done = anyio.Event()
    async with working(postgres_url, "a", done), working(postgres_url, "b", anyio.Event()) as other:
        with anyio.fail_after(30):
            for number in range(1_000):  # the first node listens from some moment on
                await other.defer("finish", {}, lock=f"{number}", node="a")
                with anyio.move_on_after(SPACING_SECONDS):
                    await done.wait()
                    break
    assert done.is_set()


async def test_idle_node_asks_the_database_little(postgres_url: str, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "crib", port=0, default_cwd=tmp_path, database_url=postgres_url)
    query = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
    polls, polled = 0, anyio.Event()

    def count(_: ClusterState) -> None:
        nonlocal polls, polled
        polls += 1
        polled.set()
        polled = anyio.Event()

    async with Crib(settings, environment=bare_environment(tmp_path)) as crib:
        crib.signals.on_poll(count)

        async def wait_for_polls(number: int) -> None:
            while polls < number:
                await polled.wait()

        with anyio.fail_after(60):
            await wait_for_polls(3)  # what a start has caused is done
            ((before,),), first = fetch_rows(postgres_url, query), polls
            await wait_for_polls(first + POLLS)
            ((after,),), last = fetch_rows(postgres_url, query), polls
    assert (after - before) / (last - first) <= MOST_TRANSACTIONS
