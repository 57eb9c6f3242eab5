"""Jobs of a suspended node: another node takes them over, and the first one ignores them when it resumes."""

import signal

import pytest

from cluster.failures import PlayedCluster, agents
from cluster.nodes import wait_for
from integration.store.databases import fetch_rows, run
from long_tests import takes_long

pytestmark = pytest.mark.anyio


def job_of(played: PlayedCluster, schedule: str) -> tuple[int, str, int | None]:
    """Return the id, state and worker of the oldest job with the lock of a schedule."""
    query = f"SELECT id, status, worker_id FROM procrastinate_jobs WHERE lock = 'schedule:{schedule}' ORDER BY id"
    rows = fetch_rows(played.database, query)
    return (rows[0][0], rows[0][1], rows[0][2]) if rows else (0, "", None)


@takes_long
async def test_suspended_node_finishes_no_job_and_releases_no_lock(played: PlayedCluster) -> None:
    nodes = played.start(2)
    assert nodes[0].request("POST", "/api/agents", {"id": "night", "name": "Night"}).status_code == 201
    body = {
        "name": "n",
        "agentId": "night",
        "prompt": "[[script:hang]]",
        "cwd": str(played.folder),
        "cron": "0 0 1 1 *",
    }
    schedule = str(nodes[0].request("POST", "/api/schedules", body).json()["id"])
    assert nodes[0].request("POST", f"/api/schedules/{schedule}/run").status_code < 300
    wait_for(lambda: any(agents(node) for node in nodes))
    first, second = sorted(nodes, key=lambda node: not agents(node))
    held = job_of(played, schedule)
    assert held[1] == "doing"

    first.signal(signal.SIGSTOP)
    wait_for(lambda: (job := job_of(played, schedule))[1] == "doing" and job[2] != held[2], 60)
    taken = job_of(played, schedule)
    assert taken[0] == held[0], "it is the same job"
    wait_for(lambda: agents(second), 60)
    next_run = '{"schedule": "none", "due_at": "2026-01-01T00:00:00+00:00", "attempt": 1}'
    run(
        played.database,
        "INSERT INTO procrastinate_jobs (queue_name, task_name, lock, args)"
        f" VALUES ('any', 'schedule_run', 'schedule:{schedule}', '{next_run}')",
    )
    first.signal(signal.SIGCONT)
    wait_for(lambda: not agents(first), 60)
    wait_for(lambda: first.call("counter/slow", {"marker": "again", "seconds": 0}).status_code == 200, 60)
    wait_for(lambda: first.request("GET", "/api/nodes").json()[-1]["state"] == "alive")
    assert job_of(played, schedule) == taken, "the woken node neither finished the job nor took it back"
    waiting = fetch_rows(played.database, f"SELECT status FROM procrastinate_jobs WHERE lock = 'schedule:{schedule}'")
    # The takeover may add the job of the run once more, which then finds the run ended.
    assert sorted(waiting)[:2] == [("doing",), ("todo",)], "the lock is held, so the next job waits"
    assert waiting.count(("doing",)) == 1

    [(session,)] = fetch_rows(played.database, "SELECT session FROM schedule_runs")
    assert second.request("POST", f"/api/sessions/{session}/interrupt").json()["interrupted"]
    wait_for(lambda: not job_of(played, schedule)[0], 60)
    assert fetch_rows(played.database, "SELECT state FROM schedule_runs") == [("interrupted",)]
    assert await played.findings() == []
