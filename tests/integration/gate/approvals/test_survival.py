"""A killed process never runs a call that waited for approval; the next process closes the approval."""

import os
import random
import signal
import sys
from pathlib import Path

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from integration.gate.approvals.requests import OWNER, open_approvals
from integration.store.databases import fetch_rows
from toolcrib.store.engine import open_store

pytestmark = pytest.mark.anyio

PROGRAM = Path(__file__).with_name("waiting_calls.py")
KILLS = 12


async def run_and_kill(database: str, seed: int) -> dict[str, set[str]]:
    """Run and kill the program repeatedly; return the ids it printed, by word."""
    random_numbers = random.Random(seed)
    printed: dict[str, set[str]] = {"left": set(), "asked": set(), "ran": set()}
    environment = {**os.environ, "PYTHONPATH": str(PROGRAM.parents[3])}
    command = [sys.executable, str(PROGRAM), database]
    async with await anyio.open_process(command, stderr=None, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines = BufferedByteReceiveStream(process.stdout)
        for _ in range(KILLS):
            await process.stdin.send(b"go\n")
            child, enough = 0, random_numbers.randrange(1, 60)
            while (line := (await lines.receive_until(b"\n", 100)).decode()) != "ended":
                word, _, value = line.partition(" ")
                if word == "pid":
                    child = int(value)
                    continue
                printed[word].add(value)
                enough -= 1
                if enough == 0:
                    os.kill(child, signal.SIGKILL)
        process.kill()
    return printed


@pytest.mark.parametrize("seed", [1])
async def test_killed_process_never_runs_an_unapproved_call(database: str, seed: int) -> None:
    with anyio.fail_after(120):
        printed = await run_and_kill(database, seed)
    rows = {id: (status, by) for id, status, by in fetch_rows(database, "SELECT id, status, decided_by FROM approvals")}
    assert printed["ran"]
    assert printed["left"]
    assert printed["ran"] <= printed["asked"]
    assert {rows[id] for id in printed["ran"]} == {("approved", "owner")}
    async with open_store(database) as store, open_approvals(store) as harness:
        assert await harness.approvals.find(status="pending") == []
        expired = {data["approvalId"] for kind, data in harness.events if kind == "approval_resolved"}
        assert len(expired) == len(harness.events)
        assert expired.isdisjoint(printed["ran"])
        assert {(await harness.approvals.get(id)).status for id in expired} <= {"expired"}  # other cribs list them too
        for id in printed["left"]:
            stored = await harness.approvals.get(id)
            assert stored.status == "expired"
            await harness.answer_refused("approval.decided", id, "approve", by=OWNER)
