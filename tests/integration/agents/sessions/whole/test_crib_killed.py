"""`toolcrib serve` killed under a session: the session is interrupted, no process is left, and it resumes."""

import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL

import anyio
import anyio.to_thread
import psutil
import pytest
from anyio.abc import Process

from integration.agents.sessions.whole.claude_crib import MODEL, TIMEOUT, Turn, tool_block
from lab import eventually
from toolcrib.base.home import Home, owner_token, prepare_home, read_run
from toolcrib.base.settings import Environment
from toolcrib.model.json import JsonObject
from toolcrib.model.sessions import SessionEvent
from toolcrib.testing.runner_rig import do, prompt, say
from toolcrib.testing.scripted_model.server import ScriptedModel
from toolcrib.web.api_client.api_client import ApiClient

pytestmark = pytest.mark.anyio

ALL = bool(os.environ.get("TOOLCRIB_TEST_ALL"))
TOOLS = '''
"""A tool that never answers."""

import anyio
from toolcrib import tool

@tool(always_load=True)
async def wait() -> str:
    """Never answer."""
    await anyio.Path({trace!r}).touch()
    await anyio.sleep_forever()
'''


class CribHome:
    """A home on which processes of `toolcrib serve` run one after the other."""

    def __init__(self, folder: Path, environment: Environment) -> None:
        self.home: Home = prepare_home(folder / "home")
        self.project = folder / "project"
        self.project.mkdir()
        self.trace = folder / "trace"
        self.log = folder / "log"
        (self.home.tools / "lab.py").write_text(TOOLS.format(trace=str(self.trace)), encoding="utf-8")
        self._environment = environment

    @asynccontextmanager
    async def crib(self) -> AsyncGenerator[tuple[Process, ApiClient]]:
        """Run a process with its owner's client; kill it afterwards if it still runs."""
        command = [sys.executable, "-m", "toolcrib", "serve", "--home", str(self.home.root), "--port", "0", "--no-open"]
        with self.log.open("wb") as log:
            process = await anyio.open_process(
                command, env=dict(self._environment), stdin=DEVNULL, stdout=DEVNULL, stderr=log
            )
        try:
            with anyio.fail_after(TIMEOUT):
                while (info := read_run(self.home)) is None or info.pid != process.pid:
                    assert process.returncode is None, self.log.read_text(encoding="utf-8")
                    await anyio.sleep(0.02)
            async with ApiClient(info.url, owner_token(self.home), source="cli", cwd=str(self.project)) as client:
                yield process, client
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            await process.aclose()


@dataclass(frozen=True)
class Stage:
    """A moment of a turn: the model's step, the event that shows it, and whether the tool has started."""

    name: str
    event: str
    step: JsonObject
    mode: str = "acceptEdits"
    is_in_call: bool = False

    def is_reached(self, event: SessionEvent) -> bool:
        """Return whether this event shows the stage."""
        return self.event in (event.kind, event.data.get("state"))


STAGES = (
    Stage("asking", "approval_required", do(tool_block("mcp__lab__wait")), "default"),
    Stage("starting", "starting", say("never")),
    Stage("streaming", "text_delta", say("word " * 1000, chunk=5, chunk_delay_ms=20)),
    Stage("calling", "tool_call_end", do(tool_block("mcp__lab__wait")), is_in_call=True),
)


def is_done(event: SessionEvent) -> bool:
    return event.kind == "done"


async def follow(
    client: ApiClient, id: str, after: int, until: Callable[[SessionEvent], bool], *, approves: bool = False
) -> Turn:
    """Read events until one matches; with `approves`, approve pending calls before that."""
    turn = Turn()
    with anyio.fail_after(TIMEOUT):
        async for event in client.sessions.events(id, after):
            turn.append(event)
            if until(event):
                break
            if approves and event.kind == "approval_required":
                await client.permissions.answer(event.data["approvalId"], {"decision": "approve"})
    return turn


async def session_killed_at(stage: Stage, crib_home: CribHome) -> JsonObject:
    """Return a session whose crib was killed at this stage; check that no process is left."""
    async with crib_home.crib() as (process, client):
        session = await client.sessions.create({"model": MODEL, "mode": stage.mode})
        if stage.name != "starting":
            sent = await client.sessions.send(session["id"], prompt("before"))
            await follow(client, session["id"], sent["seq"], is_done)
        sent = await client.sessions.send(session["id"], prompt("s"))
        await follow(client, session["id"], sent["seq"], stage.is_reached)
        if stage.is_in_call:
            await eventually(crib_home.trace.exists, TIMEOUT)
        started = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        await process.wait()
    _, alive = await anyio.to_thread.run_sync(psutil.wait_procs, started, 20)
    assert alive == []
    assert started or stage.name == "starting"
    return session


@pytest.mark.parametrize("stage", STAGES if ALL else STAGES[:1], ids=lambda stage: stage.name)
async def test_session_of_a_killed_crib_is_interrupted_and_resumes(
    no_leaked_children: None,
    claude_environment: Environment,
    scripted_model: ScriptedModel,
    tmp_path: Path,
    stage: Stage,
) -> None:
    crib_home = CribHome(tmp_path, claude_environment)
    scripted_model.scripts["before"] = [say("My favourite colour is teal.")]
    scripted_model.scripts["s"] = [stage.step]
    scripted_model.scripts["after"] = [do(tool_block("mcp__toolcrib__ping")), say("I am back.")]
    session = await session_killed_at(stage, crib_home)
    async with crib_home.crib() as (_, client):
        (found,) = await client.sessions.list()
        assert (found["id"], found["state"]) == (session["id"], "interrupted")
        before = await follow(client, session["id"], 0, lambda event: event.seq == found["lastSeq"])
        assert before.reason == "interrupted"
        assert [call.is_error for call in before.calls] == [True] * len(before.of("tool_call_start"))
        assert [each["decision"] for each in before.of("approval_resolved")] == ["expired"] * (stage.mode == "default")
        assert {each["messageId"] for each in before.of("text_delta")} == {
            each["messageId"] for each in before.of("text_message")
        }
        assert await client.permissions.approvals(status="pending") == []
        sent = await client.sessions.send(session["id"], prompt("after"))
        turn = await follow(client, session["id"], sent["seq"] - 1, is_done, approves=True)
        assert turn.reason == "completed"
        assert [call.name for call in turn.calls] == ["mcp__toolcrib__ping"]
        assert "pong" in turn.calls[0].text
        whole = [event.seq for event in (*before, *turn)]
        assert whole == list(range(1, len(whole) + 1)), "the events have a gap"
        assert (await client.verify_audit())["ok"] is True
        await client.sessions.delete(session["id"])
    assert "teal" in str(scripted_model.bodies[-1]["messages"]) or stage.name == "starting"
