"""A killed process never runs what waited for a person, and the next one closes it."""

import os
import random
import signal
import sys
from pathlib import Path

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from integration.gate.approvals.requests import OWNER, desk
from integration.store.databases import fetch_rows
from toolcrib.store.engine import open_store

pytestmark = pytest.mark.anyio

ASKER = Path(__file__).with_name("asker.py")
KILLS = 12


async def killed_at_random(database: str, seed: int) -> dict[str, set[str]]:
    """Run the program and kill it, again and again; gives what it said, by word."""
    chance = random.Random(seed)
    said: dict[str, set[str]] = {"left": set(), "asked": set(), "ran": set()}
    environment = {**os.environ, "PYTHONPATH": str(ASKER.parents[3])}
    command = [sys.executable, str(ASKER), database]
    async with await anyio.open_process(command, stderr=None, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines = BufferedByteReceiveStream(process.stdout)
        for _ in range(KILLS):
            await process.stdin.send(b"go\n")
            child, enough = 0, chance.randrange(1, 60)
            while (line := (await lines.receive_until(b"\n", 100)).decode()) != "ended":
                word, _, value = line.partition(" ")
                if word == "pid":
                    child = int(value)
                    continue
                said[word].add(value)
                enough -= 1
                if enough == 0:
                    os.kill(child, signal.SIGKILL)
        process.kill()
    return said


@pytest.mark.parametrize("seed", [1])
async def test_a_killed_process_never_runs_what_nobody_approved(database: str, seed: int) -> None:
    with anyio.fail_after(120):
        said = await killed_at_random(database, seed)
    rows = {id: (status, by) for id, status, by in fetch_rows(database, "SELECT id, status, decided_by FROM approvals")}
    assert said["ran"]
    assert said["left"]
    assert said["ran"] <= said["asked"]
    assert {rows[id] for id in said["ran"]} == {("approved", "owner")}
    async with open_store(database) as store, desk(store) as at:
        assert await at.approvals.find(status="pending") == []
        told = {data["approvalId"] for kind, data in at.events if kind == "approval_resolved"}
        assert len(told) == len(at.events)
        assert told.isdisjoint(said["ran"])
        assert {(await at.approvals.get(id)).status for id in told} <= {"expired"}  # other cribs show them, too
        for id in said["left"]:
            kept = await at.approvals.get(id)
            assert kept.status == "expired"
            await at.refused("approval.decided", id, "approve", by=OWNER)
