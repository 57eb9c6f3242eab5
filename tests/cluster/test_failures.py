"""The failure matrix: how nodes behave when one of them, or the database, fails. Each test checks the history."""

import os
import signal
import time

import anyio
import pytest

from cluster.failures import CLIENTS, Partition, PlayedCluster, agents, unknown_calls
from cluster.load import Load
from cluster.nodes import wait_for
from deadlines import stretched
from integration.store.databases import Server, fetch_rows
from long_tests import takes_long

pytestmark = pytest.mark.anyio


@takes_long
async def test_turn_of_a_killed_node_is_continued_without_repeating_its_call(played: PlayedCluster) -> None:
    first, second = played.start(2)
    session = played.begin_turn(first)
    load = Load([second], CLIENTS)
    with load.running():
        first.kill()
        seconds = played.await_continued(session)
    assert seconds < stretched(15)
    assert played.calls.count("in flight") == 1
    assert unknown_calls(played) == 1
    assert await played.findings(load) == []
    for pid in agents(first):
        os.kill(pid, signal.SIGKILL)


@takes_long
async def test_suspended_node_writes_nothing_and_ends_its_agents(played: PlayedCluster) -> None:
    first, second = played.start(2)
    session = played.begin_turn(first)
    assert agents(first)
    load = Load([second], CLIENTS)
    with load.running():
        first.signal(signal.SIGSTOP)
        suspended = time.monotonic()
        played.await_continued(session)
        await anyio.sleep(max(0.0, suspended + 30 - time.monotonic()))
        before = fetch_rows(played.database, f"SELECT max(seq) FROM session_events WHERE session_id = '{session}'")
        first.signal(signal.SIGCONT)
        wait_for(lambda: not agents(first), 60)
    assert fetch_rows(played.database, f"SELECT max(seq) FROM session_events WHERE session_id = '{session}'") == before
    assert played.calls.count("in flight") == 1
    wait_for(lambda: first.call("counter/slow", {"marker": "again", "seconds": 0}).status_code == 200, 60)
    assert await played.findings(load) == []


@takes_long
async def test_restart_of_the_database_loses_no_answered_call(played: PlayedCluster, postgres: Server) -> None:
    nodes = played.start(2)
    load = Load(nodes, CLIENTS)
    with load.running():
        postgres.stop()
        await anyio.sleep(2)
        postgres.ensure_postgres_running()
        before = len(load.acknowledged)
        wait_for(lambda: len(load.acknowledged) > before + CLIENTS, 60)
    assert await played.findings(load) == []


@takes_long
async def test_node_without_the_database_denies_calls_and_ends_its_agents(played: PlayedCluster) -> None:
    partition = Partition(played.database)
    [first] = played.start(1, variables={"DATABASE": partition.url})
    [second] = played.start(1)
    session = played.begin_turn(first)
    load = Load([second], CLIENTS)
    with load.running():
        partition.cut()
        wait_for(lambda: not agents(first), 60)
        assert first.call("counter/slow", {"marker": "cut off", "seconds": 0}).status_code != 200
        played.await_continued(session)
        partition.heal()
        wait_for(lambda: first.call("counter/slow", {"marker": "healed", "seconds": 0}).status_code == 200, 60)
    partition.close()
    assert "cut off" not in played.calls
    assert played.calls.count("in flight") == 1
    assert await played.findings(load) == []


@takes_long
async def test_due_moments_have_one_run_despite_clock_offsets(played: PlayedCluster) -> None:
    [first] = played.start(1, variables={"CLOCK_OFFSET": "5"})
    [second] = played.start(1, variables={"CLOCK_OFFSET": "-5"})
    agent = first.request("POST", "/api/agents", {"id": "clock", "name": "Clock"})
    assert agent.status_code < 300, agent.text
    body = {
        "name": "often",
        "agentId": "clock",
        "prompt": "[[script:default]]",
        "cwd": str(played.folder),
        "everySeconds": 60,
    }
    made = first.request("POST", "/api/schedules", body)
    assert made.status_code < 300, made.text
    load = Load([first, second], CLIENTS)
    with load.running():
        wait_for(
            lambda: len(fetch_rows(played.database, "SELECT 1 FROM schedule_runs WHERE state = 'completed'")) >= 2, 150
        )
        second.kill()
        wait_for(
            lambda: len(fetch_rows(played.database, "SELECT 1 FROM schedule_runs WHERE state = 'completed'")) >= 3, 150
        )
    played.settle()
    assert await played.findings(load) == []


@takes_long
async def test_turn_of_a_leaving_node_is_continued_by_another(played: PlayedCluster) -> None:
    first, second = played.start(2)
    session = played.begin_turn(first, "hang")
    wait_for(lambda: played.owner(session)[1] == "running")
    node = played.owner(session)[0]
    load = Load([first, second], CLIENTS)
    with load.running():
        first.stop()
        wait_for(lambda: played.owner(session)[1] == "running" and played.owner(session)[0] not in ("", node))
        assert second.request("POST", f"/api/sessions/{session}/interrupt").status_code < 300
        wait_for(lambda: played.owner(session)[1] == "idle")
    played.settle()
    assert await played.findings(load) == []
