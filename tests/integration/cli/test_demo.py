"""`toolcrib demo` with the real Claude Code on the scripted model."""

import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx2
import pytest
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from deadlines import stretched
from http_clients import PLAIN
from long_tests import takes_long
from toolcrib.model.json import JsonObject
from toolcrib.web.api_client.api_client import ApiClient

pytestmark = [pytest.mark.anyio, takes_long]

BOUND = 90.0
"""Seconds for a whole demo on a loaded machine."""


@dataclass
class Demo:
    """A running demo and its output."""

    process: Process
    lines: BufferedByteReceiveStream

    async def event(self, **wanted: str) -> JsonObject:
        """Return the next printed event with these members."""
        while True:
            line: JsonObject = json.loads(await self.lines.receive_until(b"\n", 1_000_000))
            if all(line.get(key) == value for key, value in wanted.items()):
                return line

    async def end(self) -> int:
        """Send SIGINT and return the exit code."""
        self.process.send_signal(signal.SIGINT)
        return await self.process.wait()


@asynccontextmanager
async def demo(folder: Path, *options: str, path: Sequence[Path] = ()) -> AsyncGenerator[Demo]:
    """Run `toolcrib demo --json` with a temporary directory of its own."""
    temporary = folder / "temporary"
    temporary.mkdir()
    variables = {
        "HOME": str(folder),
        "PATH": os.environ["PATH"],
        "TMPDIR": str(temporary),
        "TOOLCRIB_HOME": str(folder / "untouched"),
        "PYTHONPATH": os.pathsep.join(map(str, path)),
    }
    command = [sys.executable, "-m", "toolcrib", "demo", "--json", "--no-open", *options]
    with anyio.fail_after(BOUND):
        process = await anyio.open_process(command, cwd=folder, env=variables, stderr=None)
        assert process.stdout is not None
        try:
            yield Demo(process, BufferedByteReceiveStream(process.stdout))
        finally:
            if process.returncode is None:
                process.kill()
            with anyio.CancelScope(shield=True):
                await process.aclose()


def client_of(ready: JsonObject) -> ApiClient:
    """Return an API client of the demo's owner."""
    token = Path(ready["home"], "token").read_text(encoding="utf-8").strip()
    return ApiClient(str(ready["mcp"]).removesuffix("/mcp"), token, source="web")


async def test_demo_shows_a_session_an_approval_and_the_audit_and_leaves_no_files(tmp_path: Path) -> None:
    async with demo(tmp_path) as shown:
        ready = await shown.event(event="ready")
        ended = await shown.event(event="session", state="completed")
        waiting = await shown.event(event="session", state="waiting")
        async with httpx2.AsyncClient(follow_redirects=True, trust_env=False, verify=PLAIN, timeout=60) as browser:
            assert "The model is scripted" in (await browser.get(ready["console"])).text
        async with client_of(ready) as client:
            assert len(await client.agents()) == 6
            assert {each["name"]: each["state"] for each in await client.servers()} == {
                "notes": "connected",
                "tracker": "connected",
            }
            assert len(await client.schedules.list()) == 3
            records = await client.audit(session=ended["sessionId"])
            refunds = [each for each in records if each["tool"] == "refund" and each["phase"] == "outcome"]
            assert [each["decision"] for each in refunds] == ["deny", "ask"]
            transcript = b"".join([part async for part in client.sessions.transcript(ended["sessionId"])]).decode()
            assert "Refunds above 200 € are made by accounting." in transcript
            assert "58.00 € go back to the card ending in 4471" in transcript
            await client.permissions.answer(waiting["approvalId"], {"decision": "approve"})
            await shown.event(event="session", state="completed", sessionId=waiting["sessionId"])
            assert (await client.verify_audit())["ok"] is True
        assert await shown.end() == 128 + signal.SIGINT
    assert list((tmp_path / "temporary").iterdir()) == []
    assert not (tmp_path / "untouched").exists()


async def test_scheduled_run_denies_calls_that_need_an_approval(tmp_path: Path) -> None:
    async with demo(tmp_path) as shown:
        ready = await shown.event(event="ready")
        await shown.event(event="session", state="waiting")
        async with client_of(ready) as client:
            morning = next(each for each in await client.schedules.list() if each["name"] == "Morning triage")
            run = await ended_run(client, morning["id"])
            records = await client.audit(session=run["sessionId"], tool="tracker/close_issue")
        assert run["state"] == "completed"
        assert [each["decision"] for each in records] == ["deny"]


async def test_demo_without_claude_makes_its_calls_and_keeps_its_home(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys\nsys.modules['claude_agent_sdk'] = None\n", encoding="utf-8")
    kept = tmp_path / "kept"
    async with demo(tmp_path, "--home", str(kept), path=[hidden]) as shown:
        await shown.event(event="ready")
        calls = [await shown.event(event="call") for _ in range(4)]
        assert ["refused" in call for call in calls] == [False, False, False, True]
        assert "Refunds above 200 € are made by accounting." in calls[-1]["refused"]
        assert await shown.end() == 128 + signal.SIGINT
    assert json.loads((kept / "kestrel" / "data" / "orders.json").read_text(encoding="utf-8"))


async def test_directory_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter").write_text("Dear …", encoding="utf-8")
    with anyio.fail_after(BOUND):
        done = await anyio.run_process(
            [sys.executable, "-m", "toolcrib", "demo", "--home", str(tmp_path)],
            env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
            check=False,
        )
    assert done.returncode == 1
    assert b"is not empty" in done.stderr
    assert [each.name async for each in anyio.Path(tmp_path).iterdir()] == ["letter"]


async def ended_run(client: ApiClient, schedule: str) -> JsonObject:
    """Return the newest run of a schedule, once it has ended."""
    for _ in range(int(stretched(BOUND) * 5)):
        run = (await client.schedules.history(schedule))[0]
        if run["state"] != "running":
            return run
        await anyio.sleep(0.2)
    raise AssertionError("The run does not end.")
