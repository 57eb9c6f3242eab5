"""Sessions of the real Claude Code: what the crib adds to what the Claude Agent SDK takes by itself.

Both sides run in one process, which has nothing else to do, and take turns; the model is a process of its own. Alone:
`python -m bench.agents`.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import uvloop

from bench import report, subjects
from bench.model_process import CALLS, ECHO
from bench.report import Row
from toolcrib.agents.sessions.sessions import OpenSession
from toolcrib.base.settings import Environment, Settings
from toolcrib.host import Crib
from toolcrib.testing.environments import claude_environment
from toolcrib.tools import ToolServer, tool

STARTS = 9
ROUNDS = 3
"""How often both sides start, and how often they do more than that."""
TURNS = 12
MODEL = "claude-sonnet-4-5"
HELLO, MANY = "Go on. [[script:hello]]", "Go on. [[script:calls]]"


@tool(read_only=True)
async def echo(text: str) -> str:
    """Say something again."""
    return text


@dataclass
class Side:
    """What one side took: seconds to first words, seconds of a later turn, CPU seconds of a call."""

    first: list[float] = field(default_factory=list[float])
    turns: list[float] = field(default_factory=list[float])
    calls: list[float] = field(default_factory=list[float])

    def medians(self) -> tuple[float, float, float]:
        """The usual ones."""
        return statistics.median(self.first), statistics.median(self.turns), statistics.median(self.calls)


@asynccontextmanager
async def _alone(environment: Environment, folder: Path) -> AsyncGenerator[Any]:
    """A conversation with the SDK itself, with the same tool, which it may use."""
    from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, SdkMcpTool, create_sdk_mcp_server

    async def handle(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": arguments["text"]}]}

    again: SdkMcpTool[Any] = SdkMcpTool("echo", "Say something again.", {"text": str}, handle)
    options = ClaudeAgentOptions(
        model=MODEL,
        cwd=folder,
        env=dict(environment),
        tools=[],
        mcp_servers={"tools": create_sdk_mcp_server("tools", tools=[again])},
        allowed_tools=[ECHO],
        strict_mcp_config=True,
        setting_sources=[],
        include_partial_messages=True,
    )
    async with ClaudeSDKClient(options) as client:
        yield client


async def _said_alone(client: Any, prompt: str) -> AsyncIterator[str]:
    await client.query(prompt)
    async for message in client.receive_response():
        yield type(message).__name__


async def _said(session: OpenSession, prompt: str) -> AsyncIterator[str]:
    async for event in session.send(prompt):
        yield event.kind


async def _until(said: AsyncIterator[str], *wanted: str) -> float:
    """When the first of these came; all is read."""
    at: float | None = None
    async for kind in said:
        at = time.perf_counter() if at is None and kind in wanted else at
    if at is None:
        raise RuntimeError(f"Nothing was said of {wanted}.")
    return at


async def _without(environment: Environment, folder: Path, side: Side, *, is_whole: bool) -> None:
    """One conversation with the SDK itself."""
    started = time.perf_counter()
    async with _alone(environment, folder) as client:
        side.first.append(await _until(_said_alone(client, HELLO), "StreamEvent") - started)
        if not is_whole:
            return
        for _ in range(TURNS):
            started = time.perf_counter()
            side.turns.append(await _until(_said_alone(client, HELLO), "ResultMessage") - started)
        started = time.process_time()
        await _until(_said_alone(client, MANY), "ResultMessage")
        side.calls.append((time.process_time() - started) / CALLS)


async def _with(crib: Crib, folder: Path, side: Side, *, is_whole: bool) -> None:
    """One session of the crib."""
    started = time.perf_counter()
    async with crib.session(mode="acceptEdits", cwd=folder, model=MODEL) as session:
        side.first.append(await _until(_said(session, HELLO), "text_delta") - started)
        if not is_whole:
            return
        for _ in range(TURNS):
            started = time.perf_counter()
            side.turns.append(await _until(_said(session, HELLO), "done") - started)
        started = time.process_time()
        await _until(_said(session, MANY), "done")
        side.calls.append((time.process_time() - started) / CALLS)


async def compare(folder: Path, model: str) -> None:
    """Both sides in turns; the medians of each as a line of JSON."""
    for name in ("user", "project"):
        (folder / name).mkdir()
    environment = claude_environment(folder / "user", model)
    without, with_it = Side(), Side()
    async with Crib(Settings(home=folder / "home", port=0), environment=environment) as crib:
        crib.register(ToolServer("tools", tools=[echo]))
        await _without(environment, folder / "project", Side(), is_whole=False)  # what both load is loaded once
        for number in range(STARTS):
            await _without(environment, folder / "project", without, is_whole=number < ROUNDS)
            await _with(crib, folder / "project", with_it, is_whole=number < ROUNDS)
    print(json.dumps([without.medians(), with_it.medians()]), flush=True)


def measure_agents(folder: Path) -> list[Row]:
    """Compare in a process of its own, whose variables are those of Claude Code alone."""
    if find_spec("claude_agent_sdk") is None:
        return [Row("sessions of Claude Code", "s", None)]
    place = folder / "agents"
    place.mkdir()
    with subjects.thinker(folder) as model:
        command = [sys.executable, "-m", "bench.agents", str(place), model]
        variables = {**claude_environment(place, model), "PYTHONPATH": str(subjects.ROOT)}
        done = subprocess.run(
            command, cwd=subjects.ROOT, env=variables, stdout=subprocess.PIPE, timeout=300, check=True
        )
    (first, turn, call), (crib_first, crib_turn, crib_call) = json.loads(done.stdout)
    return [
        Row("first words of a new session, beyond the SDK's own", "s", crib_first - first, limit=0.6),
        Row("  from its creation on", "s", crib_first, first),
        Row("next turn of a session, beyond the SDK's own", "ms", 1000 * (crib_turn - turn), limit=50),
        Row("  from prompt to end", "ms", 1000 * crib_turn, 1000 * turn),
        Row("CPU of a call in a session, beyond the SDK's own", "ms", 1000 * (crib_call - call), limit=2),
        Row("  with reading and telling what the model says", "ms", 1000 * crib_call, 1000 * call),
    ]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        uvloop.run(compare(Path(sys.argv[1]), sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory(prefix="toolcrib-bench-") as name:
            print(report.table(measure_agents(Path(name))))
