"""A hundred upstream servers at once: the time until all are listed, beside starting the same programs directly.

The crib runs before the servers are added, so its own start does not count. Its events report when all are connected;
then the list is fetched. While they start, a tool in the crib's own process measures how late its event loop wakes up,
and `/healthz` is requested from outside. The servers are light ones: the machine starts the same processes in both
cases, and the difference is the crib.

"""

import asyncio
import json
import statistics
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvloop

from bench import subjects
from bench.client import FIRST_ID, Address, BadAnswer, Connection, plain, prepare
from bench.gateway import until_shown
from bench.report import Row
from bench.subjects import CHILD_VARIABLES, Subject, light_upstream_command, stdio_entry, write_servers
from toolcrib.upstream.start_limit import AT_ONCE

SERVERS = 100
TOOLS = 50
LINE_BYTES = 1 << 20
WATCHED_SECONDS = 60
PROBE_EVERY = 0.02
LAG_MODULE = '''"""How late the event loop is."""

import asyncio
import time

from toolcrib import tool

STEP = 0.002
late, busy, watching = [], [], []


def note(values: list, over: float) -> None:
    while over > 0:  # a long hold is as many late wake-ups as would have come in it
        values.append(over)
        over -= STEP


async def watch() -> None:
    loop = asyncio.get_running_loop()
    while True:
        before, worked = loop.time(), time.process_time()
        await asyncio.sleep(STEP)
        over = loop.time() - before - STEP
        note(late, over)
        note(busy, min(over, time.process_time() - worked))


@tool(read_only=True)
async def begin() -> str:
    """Begin to measure."""
    watching.append(asyncio.create_task(watch()))
    return "begun"


@tool(read_only=True)
async def end() -> dict:
    """What was measured, in seconds."""
    watching.pop().cancel()
    late.sort()
    busy.sort()
    return {"p99": late[int(len(late) * 0.99)], "worst": late[-1], "busy": busy[int(len(busy) * 0.99)]}
'''


async def _list_tools(process: asyncio.subprocess.Process) -> int:
    """Do what every client does first: discovery, then the list."""
    assert process.stdin is not None
    assert process.stdout is not None
    listed: dict[str, list[object]] = {}
    for number, method in enumerate(("server/discover", "tools/list")):
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method}).encode() + b"\n")
        listed = json.loads(await process.stdout.readline())["result"]
    return len(listed["tools"])


async def directly() -> float:
    """Return the seconds to start and list all servers without a crib, as many at a time as a crib starts."""
    variables, free = subjects.environment(CHILD_VARIABLES), asyncio.Semaphore(AT_ONCE)
    processes: list[asyncio.subprocess.Process] = []

    async def one() -> None:
        async with free:
            pipe = asyncio.subprocess.PIPE
            # In its own session, like under the crib, because the scheduler divides processors by session.
            process = await asyncio.create_subprocess_exec(
                *light_upstream_command(TOOLS),
                env=variables,
                stdin=pipe,
                stdout=pipe,
                limit=LINE_BYTES,
                start_new_session=True,
            )
            processes.append(process)
            if await _list_tools(process) != TOOLS:
                raise RuntimeError("A server listed something else.")

    started = time.perf_counter()
    try:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for _ in range(SERVERS):
                group.create_task(one())
        return time.perf_counter() - started
    finally:
        for process in processes:
            if process.stdin:
                process.stdin.close()
        for process in processes:
            await process.wait()


async def poll_health(address: Address, latencies: list[float]) -> None:
    """Request `/healthz` repeatedly and collect the latencies."""
    ask, connection = plain(address, "GET", "/healthz"), await Connection.open(address)
    try:
        while True:
            started = time.perf_counter()
            await connection.send(ask)
            latencies.append(time.perf_counter() - started)
            await asyncio.sleep(PROBE_EVERY)
    finally:
        connection.close()


async def lag(crib: Subject, step: str) -> dict[str, Any]:
    """Start or stop measuring the crib's event loop."""
    name, connection = f"lag_{step}", await Connection.open(crib.address)
    try:
        request = prepare(crib.address, "tools/call", {"name": name, "arguments": {}}, name)
        async with asyncio.timeout(10):
            return json.loads(await connection.send(request(FIRST_ID)))["result"]
    finally:
        connection.close()


async def begin_lag(crib: Subject) -> None:
    """Start measuring as soon as its tool is known, which may be after the crib is ready."""
    async with asyncio.timeout(10):
        while True:
            with suppress(BadAnswer):
                await lag(crib, "begin")
                return
            await asyncio.sleep(0.05)


async def events(address: Address) -> AsyncGenerator[dict[str, Any]]:
    """Yield events of the crib. The first one is empty and marks the open stream."""
    parts = urlsplit(address.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=LINE_BYTES)
    try:
        writer.write(plain(address, "GET", "/api/events"))
        await reader.readuntil(b"\r\n\r\n")
        yield {}
        async for line in reader:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])
    finally:
        writer.close()


async def until_there(heard: AsyncGenerator[dict[str, Any]]) -> float:
    """Wait until all servers are connected and all tools are in the catalog. Return when the first condition held."""
    connected, tools = dict[str, float](), 0
    async with asyncio.timeout(WATCHED_SECONDS):
        async for event in heard:
            if event["kind"] == "catalog_changed":
                tools += len(event["added"]) - len(event["removed"])
            elif event["kind"] == "server_changed" and event["state"] == "connected":
                connected.setdefault(event["name"], time.perf_counter())
            if tools >= SERVERS * TOOLS and len(connected) >= SERVERS:
                return max(connected.values())
    raise subjects.DidNotStart(f"Only {len(connected)} servers and {tools} tools came.")


@dataclass(frozen=True)
class StartCosts:
    """Seconds until all servers were connected and until all were listed, the crib's CPU seconds, delays of the loop,
    and the latencies of `/healthz`.

    """

    connected: float
    listed: float
    used: float
    late: dict[str, float]
    health: list[float]


async def measure_start(crib: Subject, home: Path) -> StartCosts:
    """Add all servers to a running crib, and measure."""
    latencies: list[float] = []
    asking, heard = await Connection.open(crib.address), events(crib.address)
    await begin_lag(crib)
    await anext(heard)
    await asking.send(plain(crib.address, "GET", "/api/servers"))  # creating the routes belongs to the start
    probing = asyncio.create_task(poll_health(crib.address, latencies))
    try:
        # Each needs its own argument, because equal definitions are one server.
        write_servers(home, {f"server{number:02}": stdio_entry(TOOLS, str(number)) for number in range(SERVERS)})
        used, started = crib.cpu_seconds(), time.perf_counter()
        asked = asking.send(plain(crib.address, "POST", "/api/servers/reload"))
        connected = await until_there(heard)
        await until_shown(crib, SERVERS * TOOLS, 0)
        listed, used = time.perf_counter() - started, crib.cpu_seconds() - used
        await asked
        late = (await lag(crib, "end"))["structuredContent"]
        return StartCosts(connected - started, listed, used, late, latencies)
    finally:
        probing.cancel()
        with suppress(asyncio.CancelledError):
            await probing
        await heard.aclose()
        asking.close()


def measure_many_servers(folder: Path) -> list[Row]:
    """Measure everything, and how long stopping takes."""
    home = folder / "many-servers"
    (home / "tools").mkdir(parents=True)
    (home / "tools" / "lag.py").write_text(LAG_MODULE, encoding="utf-8")
    before = uvloop.run(directly())
    with subjects.crib("crib", home) as crib:
        costs = uvloop.run(measure_start(crib, home))
        memory = crib.rss_mb()
        started = time.perf_counter()
        crib.process.terminate()
        crib.process.wait(30)
        stopping = time.perf_counter() - started
    direct = (before + uvloop.run(directly())) / 2  # the machine's own speed changes within seconds
    what = f"{SERVERS} servers × {TOOLS} tools"
    return [
        Row(f"{what}: all listed", "s", costs.listed, direct, 1.5, True, "direct"),
        Row("  all connected", "s", costs.connected, direct, beside="direct"),
        Row("  CPU of the crib", "s", costs.used),
        Row("  memory of the crib", "MB", memory, limit=250),
        Row("  event loop delay, p99", "ms", 1000 * costs.late["p99"], limit=50),
        Row("    while running, without waiting for a processor, p99", "ms", 1000 * costs.late["busy"]),
        Row("    worst", "ms", 1000 * costs.late["worst"]),
        Row("  /healthz, p99", "ms", 1000 * statistics.quantiles(costs.health, n=100)[98]),
        Row("  until all have stopped", "s", stopping, limit=10),
    ]
