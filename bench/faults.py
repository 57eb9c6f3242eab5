"""Calls of a healthy server while another server misbehaves, beside the same calls while it is quiet.

One crib lives through all faults, with the healthy server connected all the time. Each bad server is added to its
file, is quiet at first, then misbehaves again and again on request, and is removed. Every answer to these requests is
checked, so that the fault is known to happen during the measurement. Some faults happen when the servers are added;
then that is measured. Bad servers are separate processes: on two processors, one that is always busy leaves one
processor for the client, the crib and the healthy server.

Calls are made one at a time. A slow call delays the next ones, so it counts as all calls that would have begun
meanwhile: the numbers are those of a caller at any moment. Run alone, or with the faults whose names contain a word:
`python -m bench.faults [WORD]`.

"""

import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from bench import report, subjects
from bench.client import Address, BadAnswer, Connection, load, plain, prepare
from bench.gateway import until_connected, until_shown
from bench.loads import TEXT
from bench.misbehaving_servers import Act, Entry, Fault, faults
from bench.report import Row
from bench.subjects import Subject, stdio_entry, write_servers

LIMIT = 3.0
ALONE_SECONDS = 0.6
PAUSE = 0.01
"""Seconds between two requests for the fault, so that the fault is measured and not the requests."""
SETTLED_SECONDS = 30
ANSWER_SECONDS = 30
LOOK_EVERY = 0.05
HEALTHY = "bench"
UNSETTLED = ("connecting", "not_checked")


class FaultTrigger:
    """Triggers a fault until it is ended. `times` counts how often."""

    def __init__(self, address: Address, fault: Fault) -> None:
        self._address = address
        self._requests = [(act, act.request(address)) for act in fault.acts]
        self._at_once = fault.at_once
        self._is_over = False
        self.times = 0

    async def run(self) -> None:
        """Run all triggers until each has finished its request, so that nothing is left for the next fault."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._at_once):
                group.create_task(self._act(number))

    def end(self) -> None:
        """Start no more requests."""
        self._is_over = True

    async def _act(self, number: int) -> None:
        connection = await Connection.open(self._address)
        try:
            while not self._is_over:
                act, request = self._requests[number % len(self._requests)]
                async with asyncio.timeout(ANSWER_SECONDS):
                    body = await connection.send(request)
                if act.expected not in body:
                    raise BadAnswer(f"{act}: expected {act.expected!r} in {body[:600]!r}")
                self.times += 1
                number += 1
                await asyncio.sleep(PAUSE)
        finally:
            connection.close()


async def until_settled(crib: Subject, names: Sequence[str]) -> None:
    """Wait until exactly these servers and the healthy one are configured, and each is connected or has failed."""
    ask, connection = plain(crib.address, "GET", "/api/servers"), await Connection.open(crib.address)
    states: dict[str, str] = {}
    try:
        async with asyncio.timeout(SETTLED_SECONDS):
            while set(states) != {HEALTHY, *names} or any(state in UNSETTLED for state in states.values()):
                await asyncio.sleep(LOOK_EVERY)
                servers: list[dict[str, Any]] = json.loads(await connection.send(ask))
                states = {server["name"]: server["state"] for server in servers}
    except TimeoutError as error:
        raise subjects.DidNotStart(f"The bad servers do not settle: {states}") from error
    finally:
        connection.close()


async def configure(crib: Subject, home: Path, servers: Mapping[str, Entry]) -> None:
    """Configure these servers beside the healthy one."""
    write_servers(home, {HEALTHY: stdio_entry(), **servers})
    connection = await Connection.open(crib.address)
    try:
        await connection.send(plain(crib.address, "POST", "/api/servers/reload"))
    finally:
        connection.close()
    await until_settled(crib, list(servers))


async def until_known(crib: Subject, acts: Sequence[Act]) -> None:
    """Wait until the tools of these acts can be called, which is later than their servers are connected."""
    for path in {f"/api/tools/{act.server}/{act.tool}" for act in acts if act.tool}:
        async with asyncio.timeout(SETTLED_SECONDS):
            while True:
                connection = await Connection.open(crib.address)
                try:
                    await connection.send(plain(crib.address, "GET", path))
                    break
                except BadAnswer:
                    await asyncio.sleep(LOOK_EVERY)
                finally:
                    connection.close()


async def calls(crib: Subject, seconds: float) -> list[float]:
    """Call the healthy server one at a time. Return the milliseconds of each call."""
    make = prepare(crib.address, "tools/call", {"name": crib.tool, "arguments": {"text": TEXT}}, crib.tool)
    return [1000 * taken for taken in await load(crib.address, make, TEXT.encode(), 1, seconds)]


def at_any_moment(latencies: Sequence[float], step: float) -> list[float]:
    """Return the durations of calls that begin each `step`, whether or not the one before has ended."""
    return [taken - over * step for taken in latencies for over in range(max(1, int(taken / step)))]


@dataclass(frozen=True)
class Impact:
    """Durations of calls before and during a fault: the median, the 90th percentile, and the slowest."""

    what: str
    alone: tuple[float, float, float]
    beside: tuple[float, float, float]

    @classmethod
    def of(cls, what: str, alone: Sequence[float], beside: Sequence[float]) -> "Impact":
        """Summarise all latencies."""
        step = statistics.median(alone)

        def summary(latencies: Sequence[float]) -> tuple[float, float, float]:
            tenths = statistics.quantiles(at_any_moment(latencies, step), n=10)
            return tenths[4], tenths[8], max(latencies)

        return cls(what, summary(alone), summary(beside))

    def rows(self) -> list[Row]:
        """Return the rows; only the median has a target."""
        return [
            Row(f"call beside {self.what}, p50", "ms", self.beside[0], self.alone[0], LIMIT, True, "alone"),
            Row(f"  p90 beside {self.what}", "ms", self.beside[1], self.alone[1]),
        ]


async def add_servers(crib: Subject, home: Path, fault: Fault) -> None:
    """Add the servers of a fault, ready for its requests."""
    await configure(crib, home, fault.servers)
    await until_known(crib, fault.acts)


async def measure_arrival(crib: Subject, home: Path, fault: Fault) -> Impact:
    """Measure a fault that lasts from adding its servers until their tools are known."""
    alone, beside = await calls(crib, ALONE_SECONDS), list[float]()
    adding = asyncio.create_task(add_servers(crib, home, fault))
    while not adding.done():
        beside += await calls(crib, ALONE_SECONDS)
    await adding
    await configure(crib, home, {})
    return Impact.of(fault.what, alone, beside)


async def measure_fault(crib: Subject, home: Path, fault: Fault) -> Impact:
    """Measure a fault, from adding its servers to removing them."""
    await add_servers(crib, home, fault)
    alone = await calls(crib, ALONE_SECONDS)
    trigger = FaultTrigger(crib.address, fault)
    triggering = asyncio.create_task(trigger.run())
    await asyncio.sleep(PAUSE)
    beside = await calls(crib, fault.seconds)
    trigger.end()
    await triggering
    if not trigger.times:
        raise BadAnswer(f"The fault {fault.what} did not happen.")
    await configure(crib, home, {})
    return Impact.of(fault.what, alone, beside)


async def measure_all(crib: Subject, home: Path, chosen: Sequence[Fault]) -> list[Impact]:
    """Measure all faults, one after the other."""
    await until_connected(crib, 1, 1)
    await until_shown(crib, 1)
    await calls(crib, ALONE_SECONDS)
    return [await (measure_arrival if fault.is_arrival else measure_fault)(crib, home, fault) for fault in chosen]


def measure_faults(folder: Path, word: str = "") -> list[Row]:
    """Start the healthy and the faulty servers, and measure the faults whose names contain this word."""
    home = folder / "faults"
    write_servers(home, {HEALTHY: stdio_entry()})
    with ExitStack() as stack:
        url = stack.enter_context(subjects.faulty_http_server(folder))
        crib = stack.enter_context(subjects.crib("crib", home))
        impacts = uvloop.run(measure_all(crib, home, [fault for fault in faults(url) if word in fault.what]))
    slowest = max(each.beside[2] for each in impacts), max(each.alone[2] for each in impacts)
    return [*(row for each in impacts for row in each.rows()), Row("  slowest call beside any fault", "ms", *slowest)]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="toolcrib-bench-") as name:
        print(report.table(measure_faults(Path(name), *sys.argv[1:])))
