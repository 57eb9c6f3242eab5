"""Starts the servers of `tests/upstreams` over stdio and watches their processes."""

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
    """Return a test server; `-S` saves the time to find site packages."""
    return ResolvedServer(
        command=sys.executable,
        args=("-S", "-m", f"upstreams.{module}", *words),
        env={"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"},
    )


@asynccontextmanager
async def connect(
    processes: Processes, module: str, *words: str, era: Era | None = "legacy"
) -> AsyncGenerator[StdioConnection]:
    """Open an initialized connection to a test server."""
    async with open_initialized(processes, module, upstream(module, *words), HELLO, era=era) as (connection, _):
        yield connection


async def call(connection: StdioConnection, tool: str = "tool", **arguments: object) -> JsonObject:
    """Call a tool and return the raw result."""
    return await connection.call("tools/call", {"name": tool, "arguments": arguments})


def is_alive(pid: int) -> bool:
    """Return whether a process runs. A zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def until_dead(*pids: int, seconds: float = 5) -> None:
    """Wait until these processes have ended. No event announces the end of other processes."""
    with anyio.move_on_after(stretched(seconds)):
        while any(map(is_alive, pids)):  # noqa: ASYNC110 nothing announces it
            await anyio.sleep(0.01)
        return
    raise AssertionError(f"Still alive: {[pid for pid in pids if is_alive(pid)]}")
