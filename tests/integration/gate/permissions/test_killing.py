"""A crib killed under load: acknowledged calls are recorded, and unapproved calls never ran."""

import contextlib
import os
import random
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL

import anyio
import pytest

from lab import eventually
from long_tests import takes_long
from toolcrib.base.home import owner_token, prepare_home, read_run
from toolcrib.model.errors import ToolcribError
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import ToolRef
from toolcrib.web.api_client.api_client import ApiClient

pytestmark = [pytest.mark.anyio, takes_long]

KILLS = 60 if os.environ.get("TOOLCRIB_TEST_ALL") else 6
NOTE = ToolRef("notes", "note")
TOOLS = '''
"""A tool that leaves a trace on disk."""

import os
from toolcrib import tool

@tool
def note(mark: str) -> str:
    """Note a mark."""
    trace = os.open({trace!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(trace, (mark + "\\n").encode())
    os.close(trace)
    return mark
'''


class Load:
    """Callers and an approver of every other call, with the facts that each of them knows."""

    def __init__(self, folder: Path) -> None:
        self.home = prepare_home(folder / "home")
        self.trace = folder / "trace"
        (self.home.tools / "notes.py").write_text(TOOLS.format(trace=str(self.trace)), encoding="utf-8")
        self.rng = random.Random(1)
        self.marks = 0
        self.secret = ""
        self.acknowledged: dict[int, str] = {}
        self.approved: set[str] = set()
        self.unanswered: set[str] = set()

    @property
    def ran(self) -> list[str]:
        """The marks of all calls that ran."""
        return self.trace.read_text(encoding="utf-8").split() if self.trace.exists() else []

    def mark(self) -> str:
        self.marks += 1
        return f"mark-{self.marks}"

    @asynccontextmanager
    async def crib(self) -> AsyncGenerator[tuple[anyio.abc.Process, str]]:
        """Run `toolcrib serve` and yield its process and URL."""
        user = self.home.root.parent / "user"
        user.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "toolcrib", "serve", "--home", str(self.home.root), "--port", "0"]
        environment = {"HOME": str(user), "PATH": "/usr/bin:/bin"}
        process = await anyio.open_process(command, env=environment, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
        try:
            with anyio.fail_after(30):
                while (info := read_run(self.home)) is None or info.pid != process.pid:
                    assert process.returncode is None
                    await anyio.sleep(0.02)
            yield process, info.url
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            await process.wait()
            await process.aclose()

    async def run_until_killed(self) -> None:
        """Load a crib until it is killed."""
        async with self.crib() as (process, url), ApiClient(url, owner_token(self.home), source="api") as owner:
            if not self.secret:
                made = await owner.permissions.create_token({"name": "robot", "source": "api"})
                self.secret = made["secret"]
            assert await owner.permissions.approvals(status="pending") == [], (
                "approvals of the killed crib are still pending"
            )
            enough = len(self.acknowledged) + self.rng.randrange(5, 60)
            with anyio.fail_after(30):
                async with ApiClient(url, self.secret) as robot, anyio.create_task_group() as tasks:
                    for _ in range(2):
                        tasks.start_soon(self.call_as_owner, owner)
                    for number in range(4):
                        tasks.start_soon(self.call_with_approval, robot, number % 2 == 0)
                    tasks.start_soon(self.approve, owner)
                    await eventually(lambda: len(self.acknowledged) >= enough, seconds=30)
                    process.send_signal(signal.SIGKILL)
                    await process.wait()
                    tasks.cancel_scope.cancel()

    async def call_as_owner(self, owner: ApiClient) -> None:
        with contextlib.suppress(ToolcribError):
            while True:
                self.acknowledge(await owner.call(NOTE, {"mark": f"hand-{self.mark()}"}))

    async def call_with_approval(self, robot: ApiClient, is_unanswered: bool) -> None:
        with contextlib.suppress(ToolcribError):
            while True:
                mark = f"{'unanswered' if is_unanswered else 'asked'}-{self.mark()}"
                if is_unanswered:
                    self.unanswered.add(mark)
                self.acknowledge(await robot.call(NOTE, {"mark": mark}))

    async def approve(self, owner: ApiClient) -> None:
        """Approve the pending calls, apart from those that stay unanswered."""
        with contextlib.suppress(ToolcribError):
            while True:
                for approval in await owner.permissions.approvals(status="pending"):
                    mark = str(approval["arguments"]["mark"])
                    if not mark.startswith("unanswered-"):
                        self.approved.add(mark)
                        with contextlib.suppress(ToolcribError):
                            await owner.permissions.answer(approval["id"], {"decision": "approve"})
                await anyio.sleep(0.002)

    def acknowledge(self, answer: JsonObject) -> None:
        self.acknowledged[answer["auditId"]] = answer["content"][0]["text"]


async def all_records(owner: ApiClient) -> dict[int, JsonObject]:
    """Return all records of the tool, by number."""
    records: dict[int, JsonObject] = {}
    oldest: int | None = None
    while page := await owner.audit(tool="note", limit=1000, after=oldest):
        records |= {record["id"]: record for record in page}
        oldest = min(record["id"] for record in page)
    return records


async def test_crib_killed_under_load_loses_no_record_and_runs_no_pending_call(
    tmp_path: Path,
) -> None:
    load = Load(tmp_path)
    for _ in range(KILLS):
        await load.run_until_killed()
    async with load.crib() as (_, url), ApiClient(url, owner_token(load.home), source="api") as owner:
        verified = await owner.verify_audit()
        records = await all_records(owner)
        pending = await owner.permissions.approvals(status="pending")
    assert verified["ok"] is True, verified
    assert pending == []
    for number, mark in load.acknowledged.items():
        assert records[number]["phase"] == "intent"
        assert records[number]["arguments"] == {"mark": mark}
    outcomes = {record["call"] for record in records.values() if record["phase"] == "outcome"}
    assert {records[number]["call"] for number in load.acknowledged} <= outcomes
    assert load.unanswered
    assert not load.unanswered & set(load.ran), "an unapproved call ran"
    assert len(load.ran) == len(set(load.ran)), "an approval was used twice"
    asked = {mark for mark in load.ran if mark.startswith("asked-")}
    assert asked
    assert asked <= load.approved
    intents = {record["arguments"]["mark"]: record for record in records.values() if record["phase"] == "intent"}
    assert set(load.ran) <= intents.keys(), "a call ran without a recorded intent"
    assert all("approvalId" in intents[mark] for mark in asked)
