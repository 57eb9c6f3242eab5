"""`make bench`: measures calls, lists and starts of the crib beside its alternatives, in under six minutes.

The subjects take turns within each round, so that other load on the machine affects all of them. CPU is that of the
server's process alone. Numbers are results with targets, never assertions: a busy machine is no defect.
`make bench ARGS="nodes sessions"` measures only the parts whose names contain one of these words.

"""

import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import uvloop

from bench import report, subjects
from bench.agents import measure_agents
from bench.config_files import FILES, discover_seconds
from bench.context import measure_context
from bench.faults import measure_faults
from bench.gateway import measure_upstream_calls, measure_upstream_lists
from bench.loads import CONCURRENCIES, Tallies, calls, listing
from bench.many_servers import measure_many_servers
from bench.nodes import measure_nodes
from bench.report import Row
from bench.sandboxes import measure_sandboxes
from bench.sessions import measure_sessions
from bench.stdio_front import FrontCost, front_cost
from bench.symbols import measure_symbols
from bench.tools import write_echo, write_many

ROUNDS = 12
MANY = 5_000
STARTS = 3
RESULTS = subjects.ROOT / "bench" / "results" / "latest.json"


def call_rows(tallies: Tallies, power: str, floor: str) -> list[Row]:
    """Return the rows of calls: the crib, its reference and its limits."""
    crib, sdk = ({c: tallies[name, c] for c in CONCURRENCIES} for name in ("crib", "sdk"))
    rows = [
        Row("call p50, one at a time", "ms", crib[1].percentile_ms(50), sdk[1].percentile_ms(50), 1.0, True),
        Row("call p99, one at a time", "ms", crib[1].percentile_ms(99), sdk[1].percentile_ms(99)),
    ]
    rows += [Row(f"calls, {c} at a time", "1/s", crib[c].rate, sdk[c].rate) for c in CONCURRENCIES]
    rows += [Row(f"CPU per call, {c} at a time", "ms", crib[c].cpu_ms, sdk[c].cpu_ms, 0.7, True) for c in CONCURRENCIES]
    rows += [
        Row(f"  {text}, {c} at a time", "ms", tallies[name, c].cpu_ms, sdk[c].cpu_ms)
        for name, text in ((power, "with TOOLCRIB_DURABILITY=power"), (floor, "bare ASGI floor"))
        for c in CONCURRENCIES
    ]
    return rows + telemetry_rows(tallies)


def telemetry_rows(tallies: Tallies) -> list[Row]:
    """Return the cost of OTLP traces, metrics and logs beside the same crib without them."""
    return [
        Row(
            f"  with TOOLCRIB_OTEL=true, {c} at a time", "ms",
            tallies["otel", c].cpu_ms, tallies["crib", c].cpu_ms, 1.1, True, "without",
        )
        for c in CONCURRENCIES
    ]  # fmt: skip


def measure_calls(folder: Path) -> list[Row]:
    """Start all subjects, wait until they are idle, load them, and stop them."""
    home, power_home, otel_home = folder / "calls", folder / "power", folder / "otel"
    for each in (home, power_home, otel_home):
        write_echo(each / "tools")
    with ExitStack() as stack:
        sdk = stack.enter_context(subjects.reference_server("sdk", folder))
        floor = stack.enter_context(subjects.reference_server("floor", folder))
        crib = stack.enter_context(subjects.crib("crib", home, {"TOOLCRIB_DURABILITY": "process"}))
        power = stack.enter_context(subjects.crib("power", power_home, {"TOOLCRIB_DURABILITY": "power"}))
        receiver = stack.enter_context(subjects.reference_server("floor", folder)).address.url.removesuffix("/mcp")
        sends = {"TOOLCRIB_OTEL": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": receiver, "TOOLCRIB_DURABILITY": "process"}
        otel = stack.enter_context(subjects.crib("otel", otel_home, sends))
        time.sleep(1)
        memory = [Row("memory idle", "MB", crib.rss_mb(), sdk.rss_mb(), 110)]
        rows = call_rows(uvloop.run(calls([sdk, crib, power, floor, otel], ROUNDS)), power.name, floor.name)
        memory.append(Row("memory after the calls", "MB", crib.rss_mb(), sdk.rss_mb()))
        return rows + memory


def measure_lists(folder: Path) -> list[Row]:
    """Measure whole lists of many tools."""
    home = folder / "lists"
    write_many(home / "tools", MANY)
    with subjects.crib("crib", home) as crib:
        value, pages = uvloop.run(listing(crib, MANY))
        memory, seconds = crib.rss_mb(), crib.ready_seconds
    with subjects.reference_server("sdk", folder, MANY) as sdk:
        reference, _ = uvloop.run(listing(sdk, MANY))
    return [
        Row(f"CPU per list of {MANY:,} tools, all {pages} pages", "ms", value, reference, 5),
        Row(f"memory with {MANY:,} tools", "MB", memory),
        Row(f"serve ready with {MANY:,} tools, new home", "s", seconds, limit=5),
    ]


def measure_starts(folder: Path) -> list[Row]:
    """Measure the time until `serve` is ready and `--help` has answered, and the cost of a front that joins."""
    home = folder / "starts"
    write_echo(home / "tools")
    with subjects.crib("crib", home) as crib:
        first = crib.ready_seconds
    later: list[float] = []
    fronts: list[FrontCost] = []
    for _ in range(STARTS):
        with subjects.crib("crib", home) as crib:
            later.append(crib.ready_seconds)
            fronts = [front_cost(home) for _ in range(STARTS)]
    helps = [subjects.help_seconds() for _ in range(STARTS + 4)]
    return [
        Row("serve ready, home exists", "s", statistics.median(later), limit=1.0),
        Row("serve ready, new home", "s", first),
        Row("toolcrib --help", "ms", 1000 * statistics.median(helps), limit=200),
        Row(
            "stdio front, CPU until its first answer",
            "ms",
            statistics.median(each.cpu_ms for each in fronts),
            limit=350,
        ),
        Row("stdio front, memory", "MB", statistics.median(each.rss_mb for each in fronts), limit=40),
    ]


def measure_configs(folder: Path) -> list[Row]:
    """Measure reading the configuration of other apps."""
    return [Row(f"read {FILES} config files", "s", discover_seconds(folder / "configs"), limit=1)]


def main() -> int:
    """Measure everything, print the table, and write the JSON."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="toolcrib-bench-") as name:
        folder = Path(name)
        rows: list[Row] = []
        parts = {
            "starts": measure_starts,
            "calls": measure_calls,
            "lists": measure_lists,
            "calls of upstream servers": measure_upstream_calls,
            "lists of upstream servers": measure_upstream_lists,
            "many upstream servers": measure_many_servers,
            "calls beside upstream servers that misbehave": measure_faults,
            "sessions": measure_sessions,
            "sessions of Claude Code": measure_agents,
            "configs": measure_configs,
            "source code": measure_symbols,
            "searching and programs": measure_context,
            "sandboxes": measure_sandboxes,
            "nodes": measure_nodes,
        }
        words = sys.argv[1:]
        for text, measure in parts.items():
            if words and not any(word in text for word in words):
                continue
            print(f"measuring {text}…", file=sys.stderr)
            measured = measure(folder)
            print(report.table(measured), file=sys.stderr)  # show results even if a later part fails
            rows += measured
    print(report.table(rows))
    report.write(RESULTS, rows, time.perf_counter() - started)
    print(f"\n{time.perf_counter() - started:.0f} s; written to {RESULTS.relative_to(subjects.ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
