"""Loads on running servers: calls at several concurrencies, in turns, and whole lists; and the CPU each server used."""

import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.client import Connection, list_all, load, prepare
from bench.subjects import Subject

SECONDS = 0.4
"""Seconds of one turn. Turns are short, because the speed of a shared machine changes within seconds."""
CONCURRENCIES = (1, 16, 64)
LIST_SECONDS = 2.0
TEXT = "The quick brown fox jumps over the lazy dog."


@dataclass
class Tally:
    """The results of one subject at one concurrency, over all rounds."""

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
        """Return a percentile of the latencies in milliseconds."""
        return 1000 * statistics.quantiles(self.latencies, n=100)[percent - 1]


Tallies = dict[tuple[str, int], Tally]


async def one_load(subject: Subject, concurrency: int, seconds: float, tally: Tally) -> None:
    """Call the echo for a while and add the results."""
    params = {"name": subject.tool, "arguments": {"text": TEXT}}
    make = prepare(subject.address, "tools/call", params, subject.tool)
    cpu, started = subject.cpu_seconds(), time.perf_counter()
    latencies = await load(subject.address, make, TEXT.encode(), concurrency, seconds)
    tally.wall += time.perf_counter() - started
    tally.cpu += subject.cpu_seconds() - cpu
    tally.calls += len(latencies)
    tally.latencies += latencies


async def calls(running: Sequence[Subject], rounds: int) -> Tallies:
    """Load all subjects at each concurrency, in turns, for some rounds."""
    tallies: Tallies = defaultdict(Tally)
    for subject in running:
        await one_load(subject, 4, SECONDS / 2, Tally())
    for turn in range(rounds):
        order = [*running[turn % len(running) :], *running[: turn % len(running)]]
        for concurrency in CONCURRENCIES:
            for subject in order:
                await one_load(subject, concurrency, SECONDS, tallies[subject.name, concurrency])
    return tallies


async def listing(subject: Subject, many: int) -> tuple[float, int]:
    """Return the CPU milliseconds per whole list after the first one, and the number of pages."""
    connection = await Connection.open(subject.address)
    try:
        tools, pages, _ = await list_all(subject.address, connection)
        if tools < many:
            raise RuntimeError(f"{subject.name} lists {tools} tools instead of {many}.")
        cpu, times, end = subject.cpu_seconds(), 0, time.monotonic() + LIST_SECONDS
        while time.monotonic() < end:
            await list_all(subject.address, connection)
            times += 1
        return 1000 * (subject.cpu_seconds() - cpu) / times, pages
    finally:
        connection.close()
