"""Sessions of the real Claude Code: the overhead of the crib beside the Claude Agent SDK alone.

Both run in one idle process and take turns. The model is a separate process. Run alone: `python -m bench.agents`.

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
"""The number of starts per side, and the number of further rounds."""
TURNS = 12
MODEL = "claude-sonnet-4-5"
HELLO, MANY = "Go on. [[script:hello]]", "Go on. [[script:calls]]"


@tool(read_only=True)
async def echo(text: str) -> str:
    """Return the text."""
    return text


@dataclass
class Side:
    """Results of one side: seconds to the first words, seconds of a later turn, CPU seconds of a call."""

    first: list[float] = field(default_factory=list[float])
    turns: list[float] = field(default_factory=list[float])
    calls: list[float] = field(default_factory=list[float])

    def medians(self) -> tuple[float, float, float]:
        """Return the median of each result."""
        return statistics.median(self.first), statistics.median(self.turns), statistics.median(self.calls)


@asynccontextmanager
async def _alone(environment: Environment, folder: Path) -> AsyncGenerator[Any]:
    """Open a conversation with the SDK alone, with the same tool allowed."""
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
    """Read all messages, and return when the first message of this kind arrived."""
    at: float | None = None
    async for kind in said:
        at = time.perf_counter() if at is None and kind in wanted else at
    if at is None:
        raise RuntimeError(f"Nothing was said of {wanted}.")
    return at


async def _measure_sdk(environment: Environment, folder: Path, side: Side, *, is_whole: bool) -> None:
    """Measure one conversation with the SDK alone."""
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


async def _measure_crib(crib: Crib, folder: Path, side: Side, *, is_whole: bool) -> None:
    """Measure one session of the crib."""
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
    """Measure both sides in turns, and print their medians as a line of JSON."""
    for name in ("user", "project"):
        (folder / name).mkdir()
    environment = claude_environment(folder / "user", model)
    with_sdk, with_crib = Side(), Side()
    async with Crib(Settings(home=folder / "home", port=0), environment=environment) as crib:
        crib.register(ToolServer("tools", tools=[echo]))
        await _measure_sdk(environment, folder / "project", Side(), is_whole=False)  # loads what both sides share
        for number in range(STARTS):
            await _measure_sdk(environment, folder / "project", with_sdk, is_whole=number < ROUNDS)
            await _measure_crib(crib, folder / "project", with_crib, is_whole=number < ROUNDS)
    print(json.dumps([with_sdk.medians(), with_crib.medians()]), flush=True)


def measure_agents(folder: Path) -> list[Row]:
    """Compare in a new process that has only the variables of Claude Code."""
    if find_spec("claude_agent_sdk") is None:
        return [Row("sessions of Claude Code", "s", None)]
    place = folder / "agents"
    place.mkdir()
    with subjects.model_server(folder) as model:
        command = [sys.executable, "-m", "bench.agents", str(place), model]
        variables = {**claude_environment(place, model), "PYTHONPATH": str(subjects.ROOT)}
        done = subprocess.run(
            command, cwd=subjects.ROOT, env=variables, stdout=subprocess.PIPE, timeout=300, check=True
        )
    (first, turn, call), (crib_first, crib_turn, crib_call) = json.loads(done.stdout)
    return [
        Row("first words of a new session, beyond the SDK's own", "s", crib_first - first, limit=0.6),
        Row("  since its creation", "s", crib_first, first),
        Row("next turn of a session, beyond the SDK's own", "ms", 1000 * (crib_turn - turn), limit=50),
        Row("  from prompt to end", "ms", 1000 * crib_turn, 1000 * turn),
        Row("CPU of a call in a session, beyond the SDK's own", "ms", 1000 * (crib_call - call), limit=2),
        Row("  with reading and emitting the model's answer", "ms", 1000 * crib_call, 1000 * call),
    ]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        uvloop.run(compare(Path(sys.argv[1]), sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory(prefix="toolcrib-bench-") as name:
            print(report.table(measure_agents(Path(name))))
