"""`make bench`: calls, lists and starts, the crib beside the MCP SDK's own server in one run of under three minutes.

The subjects take turns within each round, so that whatever else the machine does falls on all of them. CPU is that of
the server's process alone. Numbers are results with targets, never assertions: a busy machine is no defect.
"""

import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from bench import report, subjects
from bench.client import Connection, list_all, load, prepare
from bench.configs import FILES, discover_seconds
from bench.report import Row
from bench.subjects import Subject
from bench.tools import write_echo, write_many

ROUNDS = 6
SECONDS = 0.8
CONCURRENCIES = (1, 16, 64)
MANY = 5_000
LIST_SECONDS = 2.0
STARTS = 3
TEXT = "The quick brown fox jumps over the lazy dog."
RESULTS = subjects.ROOT / "bench" / "results" / "latest.json"


@dataclass
class Tally:
    """What one subject did at one concurrency, over all rounds."""

    calls: int = 0
    cpu: float = 0.0
    wall: float = 0.0
    latencies: list[float] = field(default_factory=list[float])

    @property
    def rate(self) -> float:
        """Calls per second."""
        return self.calls / self.wall

    @property
    def cpu_ms(self) -> float:
        """CPU milliseconds of the server per call."""
        return 1000 * self.cpu / self.calls

    def percentile_ms(self, percent: int) -> float:
        """Latency that so many percent of the calls stay below."""
        return 1000 * statistics.quantiles(self.latencies, n=100)[percent - 1]


Tallies = dict[tuple[str, int], Tally]


async def one_load(subject: Subject, concurrency: int, seconds: float, tally: Tally) -> None:
    """Call the echo for a while and add up what it took."""
    params = {"name": subject.tool, "arguments": {"text": TEXT}}
    make = prepare(subject.address, "tools/call", params, subject.tool)
    cpu, started = subject.cpu_seconds(), time.perf_counter()
    latencies = await load(subject.address, make, TEXT.encode(), concurrency, seconds)
    tally.wall += time.perf_counter() - started
    tally.cpu += subject.cpu_seconds() - cpu
    tally.calls += len(latencies)
    tally.latencies += latencies


async def calls(running: Sequence[Subject]) -> Tallies:
    """All subjects, at each concurrency, taking turns."""
    tallies: Tallies = defaultdict(Tally)
    for subject in running:
        await one_load(subject, 4, SECONDS / 2, Tally())
    for turn in range(ROUNDS):
        order = [*running[turn % len(running) :], *running[: turn % len(running)]]
        for concurrency in CONCURRENCIES:
            for subject in order:
                await one_load(subject, concurrency, SECONDS, tallies[subject.name, concurrency])
    return tallies


async def listing(subject: Subject) -> tuple[float, int]:
    """CPU milliseconds per whole list after the first, and the number of pages."""
    connection = await Connection.open(subject.address)
    try:
        tools, pages, _ = await list_all(subject.address, connection)
        if tools < MANY:
            raise RuntimeError(f"{subject.name} lists {tools} tools instead of {MANY}.")
        cpu, times, end = subject.cpu_seconds(), 0, time.monotonic() + LIST_SECONDS
        while time.monotonic() < end:
            await list_all(subject.address, connection)
            times += 1
        return 1000 * (subject.cpu_seconds() - cpu) / times, pages
    finally:
        connection.close()


def call_rows(tallies: Tallies, power: str, floor: str) -> list[Row]:
    """The rows about calls: the crib, its reference and its limits."""
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
    return rows


def measure_calls(folder: Path) -> list[Row]:
    """Start all subjects, wait until they are idle, load them, stop them."""
    home, power_home = folder / "calls", folder / "power"
    write_echo(home / "tools")
    write_echo(power_home / "tools")
    with ExitStack() as stack:
        sdk = stack.enter_context(subjects.other("sdk", folder))
        floor = stack.enter_context(subjects.other("floor", folder))
        crib = stack.enter_context(subjects.crib("crib", home, {"TOOLCRIB_DURABILITY": "process"}))
        power = stack.enter_context(subjects.crib("power", power_home, {"TOOLCRIB_DURABILITY": "power"}))
        time.sleep(1)
        memory = [Row("memory idle", "MB", crib.rss_mb(), sdk.rss_mb(), 110)]
        rows = call_rows(uvloop.run(calls([sdk, crib, power, floor])), power.name, floor.name)
        memory.append(Row("memory after the calls", "MB", crib.rss_mb(), sdk.rss_mb()))
        return rows + memory


def measure_lists(folder: Path) -> list[Row]:
    """Whole lists of many tools."""
    home = folder / "lists"
    write_many(home / "tools", MANY)
    with subjects.crib("crib", home) as crib:
        value, pages = uvloop.run(listing(crib))
        memory = crib.rss_mb()
    with subjects.other("sdk", folder, MANY) as sdk:
        reference, _ = uvloop.run(listing(sdk))
    return [
        Row(f"CPU per list of {MANY:,} tools, all {pages} pages", "ms", value, reference, 5),
        Row(f"memory with {MANY:,} tools", "MB", memory),
    ]


def measure_starts(folder: Path) -> list[Row]:
    """Until `serve` is ready, and until `--help` has answered."""
    home = folder / "starts"
    write_echo(home / "tools")
    with subjects.crib("crib", home) as crib:
        first = crib.ready_seconds
    later: list[float] = []
    for _ in range(STARTS):
        with subjects.crib("crib", home) as crib:
            later.append(crib.ready_seconds)
    helps = [subjects.help_seconds() for _ in range(STARTS + 4)]
    return [
        Row("serve ready, home exists", "s", statistics.median(later), limit=1.5),
        Row("serve ready, new home", "s", first),
        Row("toolcrib --help", "ms", 1000 * statistics.median(helps), limit=200),
    ]


def measure_configs(folder: Path) -> list[Row]:
    """Reading what other tools are configured to use."""
    return [Row(f"read {FILES} config files", "s", discover_seconds(folder / "configs"), limit=1)]


def main() -> int:
    """Measure everything, print the table, write the JSON."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="toolcrib-bench-") as name:
        folder = Path(name)
        rows: list[Row] = []
        parts = {"starts": measure_starts, "calls": measure_calls, "lists": measure_lists, "configs": measure_configs}
        for text, measure in parts.items():
            print(f"measuring {text}…", file=sys.stderr)
            rows += measure(folder)
    print(report.table(rows))
    report.write(RESULTS, rows, time.perf_counter() - started)
    print(f"\n{time.perf_counter() - started:.0f} s; written to {RESULTS.relative_to(subjects.ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
