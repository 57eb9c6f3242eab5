"""Calls and lists of upstream servers through the crib, beside the SDK's own server and a FastMCP proxy.

CPU is that of the proxy between client and upstream, never of the upstream. The stdio upstream is a light one. The HTTP
upstream is the SDK's own server, which is also the reference when called directly.

"""

import asyncio
import json
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import uvloop

from bench import subjects
from bench.client import Connection, list_all, plain
from bench.loads import CONCURRENCIES, Tallies, calls, listing
from bench.report import Row
from bench.subjects import PEERS, Subject, light_upstream_command, stdio_entry, write_servers

ROUNDS = 8
MANY = 5_000
CONNECTED_SECONDS = 60
SERVER = "bench"
TARGETS = {"stdio": (0.8, 4.0), "HTTP": (1.5, 30.0)}
"""Per kind of upstream: the most CPU relative to the SDK server, and the least of a FastMCP proxy relative to ours."""


async def until_connected(crib: Subject, count: int, tools: int, every: float = 0.05) -> None:
    """Wait until this many servers of the crib are connected, each with this many tools."""
    ask = plain(crib.address, "GET", "/api/servers")
    connection = await Connection.open(crib.address)
    listed: list[dict[str, Any]] = []
    try:
        async with asyncio.timeout(CONNECTED_SECONDS):
            while sum(server["state"] == "connected" and server["tools"] == tools for server in listed) < count:
                await asyncio.sleep(every)
                listed = json.loads(await connection.send(ask))
    except TimeoutError as error:
        raise subjects.DidNotStart(f"{crib.name}: not all servers connected: {str(listed)[:2000]}") from error
    finally:
        connection.close()


async def until_shown(crib: Subject, tools: int, every: float = 0.05) -> None:
    """Wait until the endpoint lists this many tools, which is later than the servers are connected."""
    connection, shown = await Connection.open(crib.address), 0
    try:
        async with asyncio.timeout(CONNECTED_SECONDS):
            while shown < tools:
                await asyncio.sleep(every)
                shown, _, _ = await list_all(crib.address, connection)
    except TimeoutError as error:
        raise subjects.DidNotStart(f"{crib.name}: only {shown} of {tools} tools are listed.") from error
    finally:
        connection.close()


@contextmanager
def crib_before(name: str, folder: Path, entry: dict[str, object], tools: int = 1) -> Generator[Subject]:
    """Run a crib with one connected upstream."""
    home = folder / name
    write_servers(home, {SERVER: entry})
    with subjects.crib(name, home) as crib:
        uvloop.run(until_connected(crib, 1, tools))
        uvloop.run(until_shown(crib, tools))
        yield crib


def crib_rows(tallies: Tallies) -> list[Row]:
    """Return the crib's rows, beside the SDK's own server."""
    return [
        Row(
            f"CPU per call, {kind} upstream, {c} at a time", "ms",
            tallies[f"crib-{kind}", c].cpu_ms, tallies["sdk", c].cpu_ms, limit, True,
        )
        for kind, (limit, _) in TARGETS.items()
        for c in CONCURRENCIES
    ]  # fmt: skip


def proxy_rows(tallies: Tallies) -> list[Row]:
    """Return the CPU of a FastMCP proxy relative to the crib."""
    with_peers = ("peer-stdio", CONCURRENCIES[0]) in tallies
    return [
        Row(
            f"  CPU of a FastMCP proxy relative to the crib, {kind} upstream, {c} at a time", "×",
            tallies[f"peer-{kind}", c].cpu_ms / tallies[f"crib-{kind}", c].cpu_ms if with_peers else None,
            limit=limit, at_least=True,
        )
        for kind, (_, limit) in TARGETS.items()
        for c in CONCURRENCIES
    ]  # fmt: skip


def start_peers(stack: ExitStack, folder: Path, upstream: str) -> list[Subject]:
    """Start FastMCP proxies before the same upstreams, if FastMCP is installed."""
    if not PEERS.exists():
        return []
    return [
        stack.enter_context(subjects.fastmcp_proxy("peer-stdio", folder, *light_upstream_command())),
        stack.enter_context(subjects.fastmcp_proxy("peer-HTTP", folder, upstream)),
    ]


def latencies(tallies: Tallies) -> Sequence[Row]:
    """Return the latencies of callers, for information."""
    direct = tallies["sdk", 1].percentile_ms(50)
    return [
        Row(f"call p50, {kind} upstream, one at a time", "ms", tallies[f"crib-{kind}", 1].percentile_ms(50), direct)
        for kind in TARGETS
    ]


def measure_upstream_calls(folder: Path) -> list[Row]:
    """Measure calls of the same echo through each kind of upstream."""
    with ExitStack() as stack:
        sdk = stack.enter_context(subjects.reference_server("sdk", folder))
        upstream = stack.enter_context(subjects.reference_server("sdk", folder)).address.url
        running = [
            sdk,
            stack.enter_context(crib_before("crib-stdio", folder, stdio_entry())),
            stack.enter_context(crib_before("crib-HTTP", folder, {"type": "http", "url": upstream})),
            *start_peers(stack, folder, upstream),
        ]
        tallies = uvloop.run(calls(running, ROUNDS))
    return [*latencies(tallies), *crib_rows(tallies), *proxy_rows(tallies)]


def measure_upstream_lists(folder: Path) -> list[Row]:
    """Measure whole lists of an upstream with many tools."""
    with crib_before("crib-many", folder, stdio_entry(MANY), MANY) as crib:
        value, pages = uvloop.run(listing(crib, MANY))
        memory = crib.rss_mb()
    return [
        Row(f"CPU per list of {MANY:,} upstream tools, all {pages} pages", "ms", value, limit=5),
        Row(f"memory with {MANY:,} upstream tools", "MB", memory),
    ]
