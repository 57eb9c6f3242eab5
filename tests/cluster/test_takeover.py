"""Takeover: another node continues the work of one whose lease has ended, and the first one writes nothing more."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from cluster.cribs import crib_on
from integration.store.databases import fetch_rows, run
from long_tests import takes_long
from toolcrib import Crib
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.host.takeover import OWN_JOB
from toolcrib.model.errors import Denied, Unavailable
from toolcrib.nodes.jobs import queue_of

pytestmark = pytest.mark.anyio


async def until(so: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition."""
    with anyio.fail_after(30):
        while True:
            found = so()
            if found if isinstance(found, bool) else await found:
                return
            await anyio.sleep(0.05)


async def suspend(database: str, crib: Crib, patch: pytest.MonkeyPatch) -> None:
    """End the lease of a crib that does not notice it, like a long suspension."""

    async def sleep() -> None:
        await anyio.sleep_forever()

    patch.setattr(crib.membership, "renew", sleep)
    await anyio.lowlevel.checkpoint()
    run(database, f"UPDATE nodes SET seen_at = seen_at - 100 WHERE id = '{crib.membership.id}'")


async def test_node_that_died_before_its_own_first_job_is_taken_over(postgres_url: str, tmp_path: Path) -> None:
    async with crib_on(postgres_url, tmp_path / "a"):
        run(
            postgres_url,
            "INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock)"
            f" VALUES ('{queue_of('dead')}', '{OWN_JOB}', 'node:dead', 'own node:dead')",
            "INSERT INTO nodes (id, epoch, version, load, seen_at, draining) VALUES ('dead', 0, '0', 0, 1, false)",
        )
        await until(
            lambda: fetch_rows(postgres_url, "SELECT id FROM procrastinate_jobs WHERE lock = 'node:dead'") == []
        )


@takes_long
async def test_turn_of_a_suspended_node_is_continued_by_another(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with crib_on(postgres_url, tmp_path / "a") as first, crib_on(postgres_url, tmp_path / "b") as second:
        session = await first.sessions.create(NewSession("api"))
        await first.sessions.send(session.id, "[[script:hang]]")
        await until(lambda: fetch_rows(postgres_url, "SELECT state FROM sessions") == [("running",)])
        await suspend(postgres_url, first, monkeypatch)
        await until(lambda: [each.id for each in second.sessions.active()] == [session.id])
        await first.sessions.interrupt(session.id)
        await until(lambda: not first.sessions.active())
        assert fetch_rows(postgres_url, "SELECT crib, epoch FROM sessions") == [(second.membership.id, 2)]
        await second.sessions.interrupt(session.id)
        await until(lambda: fetch_rows(postgres_url, "SELECT state FROM sessions") == [("idle",)])
        await until(lambda: fetch_rows(postgres_url, "SELECT count(*) FROM procrastinate_jobs") == [(0,)])
    kinds = [kind for (kind,) in fetch_rows(postgres_url, "SELECT kind FROM session_events ORDER BY seq")]
    assert kinds.count("user_message") == kinds.count("done") == 1
    epochs = fetch_rows(postgres_url, "SELECT epoch FROM session_events ORDER BY seq")
    assert epochs == sorted(epochs)


async def test_stop_of_all_nodes_binds_new_nodes_and_nodes_without_a_lease(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with crib_on(postgres_url, tmp_path / "a") as first, crib_on(postgres_url, tmp_path / "b") as second:
        session = await second.sessions.create(NewSession("api"))
        await second.sessions.send(session.id, "[[script:hang]]")
        monkeypatch.setattr(second.membership, "before_new_lease", unreachable)
        run(postgres_url, f"UPDATE nodes SET seen_at = seen_at - 100 WHERE id = '{second.membership.id}'")
        await first.kill_switch.stop(by=first.owner(), door="api", reason="odd")
        await second.membership.renew()
        assert second.membership.lost, "it has not read yet whether all nodes are stopped"
        monkeypatch.undo()
        await second.membership.renew()
        assert not second.membership.lost
        assert second.stop_switch.state is not None
        assert second.stop_switch.state.reason == "odd"
        await until(lambda: not second.sessions.active())
        with pytest.raises(Denied, match="stopped everything"):
            await second.sessions.send(session.id, "[[script:text]]")
        async with crib_on(postgres_url, tmp_path / "c") as third:
            with pytest.raises(Denied, match="stopped everything"):
                await third.call("toolcrib/ping", principal=third.owner())
        await second.kill_switch.resume(by=second.owner(), door="api")
        await until(lambda: not first.stop_switch.is_stopped)
        async with crib_on(postgres_url, tmp_path / "c") as third:
            assert not third.stop_switch.is_stopped, "the marker of the third node is outdated"
    query = "SELECT tool FROM audit WHERE tool IN ('crib.stop', 'crib.resume') AND phase = 'outcome' ORDER BY at"
    kinds = fetch_rows(postgres_url, query)
    assert kinds == [("crib.stop",), ("crib.resume",)]


async def unreachable(*_: object) -> None:
    """Fail like a database behind a broken network."""
    raise Unavailable("database.unavailable", "The database does not respond.")


async def test_stop_without_the_database_stops_the_other_nodes_once_it_responds(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with crib_on(postgres_url, tmp_path / "a") as first, crib_on(postgres_url, tmp_path / "b") as second:
        monkeypatch.setattr(first.store, "read", unreachable)
        with pytest.raises(Unavailable, match="This node is stopped, the others are not yet") as raised:
            await first.kill_switch.stop(by=first.owner(), door="api")
        assert raised.value.code == "node.unreachable"
        assert first.stop_switch.is_stopped
        monkeypatch.undo()
        await until(lambda: second.stop_switch.is_stopped)
