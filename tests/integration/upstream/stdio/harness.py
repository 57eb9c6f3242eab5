"""Real servers on real pipes: how the tests of this folder start one of `tests/upstreams` and watch its processes."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import psutil
import pytest

from deadlines import stretched
from toolcrib.base.processes.process import Processes
from toolcrib.model.json import JsonObject
from toolcrib.model.protocol import Era
from toolcrib.model.servers import ResolvedServer
from toolcrib.upstream.handshake import ClientIntroduction, open_initialized
from toolcrib.upstream.stdio import StdioConnection

TESTS = Path(__file__).parents[3]
LOOPS = [
    pytest.param("asyncio", id="asyncio"),
    pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop"),
]
"""The event loops a crib runs on: embedded, and under the server."""
HELLO = ClientIntroduction({"name": "toolcrib-tests", "version": "0"})


def upstream(module: str, *words: str) -> ResolvedServer:
    """One of the small servers, without the time that site packages take to be found."""
    return ResolvedServer(
        command=sys.executable,
        args=("-S", "-m", f"upstreams.{module}", *words),
        env={"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"},
    )


@asynccontextmanager
async def talk(
    processes: Processes, module: str, *words: str, era: Era | None = "legacy"
) -> AsyncGenerator[StdioConnection]:
    """A greeted connection with one of the small servers."""
    async with open_initialized(processes, module, upstream(module, *words), HELLO, era=era) as (connection, _):
        yield connection


async def call(connection: StdioConnection, tool: str = "tool", **arguments: object) -> JsonObject:
    """A tool call, raw."""
    return await connection.call("tools/call", {"name": tool, "arguments": arguments})


def is_alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def until_dead(*pids: int, seconds: float = 5) -> None:
    """Wait until all these processes have ended; nobody announces it, since they are not ours."""
    with anyio.move_on_after(stretched(seconds)):
        while any(map(is_alive, pids)):  # noqa: ASYNC110 nothing announces it
            await anyio.sleep(0.01)
        return
    raise AssertionError(f"Still alive: {[pid for pid in pids if is_alive(pid)]}")
