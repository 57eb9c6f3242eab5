"""Acknowledged records survive processes that are killed while writing, or that write concurrently."""

import os
import random
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from integration.store.databases import fetch_rows
from toolcrib.gate.audit.audit import Audit
from toolcrib.gate.audit.verify import Verification
from toolcrib.store.engine import open_store

pytestmark = pytest.mark.anyio

WRITER = str(Path(__file__).with_name("writer.py"))


class Writer:
    """A running `writer.py`."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._orders = process.stdin
        self._lines = BufferedByteReceiveStream(process.stdout)

    async def start(self) -> int:
        """Start another process and return its process id."""
        await self._orders.send(b"go\n")
        while True:
            word, _, number = (await self.line()).partition(" ")
            if word == "pid":
                return int(number)

    async def line(self) -> str:
        return (await self._lines.receive_until(b"\n", 100)).decode()


@asynccontextmanager
async def writer(
    database: str, head: Path, count: int, *, callers: int = 16, alone: bool = False
) -> AsyncGenerator[Writer]:
    how = [str(count), str(callers), "alone" if alone else "shared"]
    command = [sys.executable, WRITER, database, str(head), *how]
    async with await anyio.open_process(command, stderr=None) as process:
        yield Writer(process)
        process.kill()


async def verify(database: str, head: Path, *, alone: bool = False) -> Verification:
    async with open_store(database, alone=alone) as store, Audit(store, head) as audit:
        return await audit.verify()


async def check_no_record_is_lost(database: str, head: Path, *, callers: int, alone: bool) -> None:
    """Kill writers at random moments and check that every acknowledged record is stored."""
    random_numbers = random.Random(1)
    acknowledged: set[int] = set()
    with anyio.fail_after(60):
        async with writer(database, head, 10**9, callers=callers, alone=alone) as program:
            for _ in range(15):
                child = await program.start()
                enough = random_numbers.randrange(1, 120)
                alive = True
                while (line := await program.line()) != "ended":
                    acknowledged.add(int(line))
                    enough -= 1
                    if enough <= 0 and alive:
                        os.kill(child, signal.SIGKILL)
                        alive = False
    verification = await verify(database, head, alone=alone)
    assert verification.findings == ()
    kept = {number for (number,) in fetch_rows(database, "SELECT id FROM audit")}
    assert acknowledged <= kept
    assert len(acknowledged) > 15
    assert verification.records == len(kept)


async def test_killed_process_loses_no_acknowledged_record(database: str, tmp_path: Path) -> None:
    await check_no_record_is_lost(database, tmp_path / "audit.head", callers=16, alone=False)


@pytest.mark.parametrize("callers", [1, 16])
async def test_killed_process_with_a_journal_loses_no_acknowledged_record(
    sqlite_url: str, tmp_path: Path, callers: int
) -> None:
    await check_no_record_is_lost(sqlite_url, tmp_path / "audit.head", callers=callers, alone=True)


async def test_two_processes_on_one_file_write_one_chain(sqlite_url: str, tmp_path: Path) -> None:
    async def run(head: Path) -> None:
        async with writer(sqlite_url, head, 20) as program:
            await program.start()
            while await program.line() != "ended":
                pass

    heads = [tmp_path / "one.head", tmp_path / "two.head"]
    for head in heads:
        assert (await verify(sqlite_url, head)).records == 0
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for head in heads:
                tasks.start_soon(run, head)
    for head in heads:
        verification = await verify(sqlite_url, head)
        assert verification.findings == ()
        assert verification.records == 2 * 16 * 20
