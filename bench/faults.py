"""Calls of a healthy server while another one misbehaves: what they take, beside the same calls while it is quiet.

One crib lives through all faults, with the healthy server connected all the time; each bad server is put into its file,
is quiet at first, then gets into trouble again and again through calls and REST, and is taken out. Every answer that
the trouble brings is checked, so that the fault is known to go on while the calls are measured. Some are trouble when
they come: then that is measured. Bad servers are processes of their own: on two processors, one that works all the time
leaves one for client, crib and healthy server.

Calls are made one at a time. One that takes long keeps others from being made, so each counts as all that would have
begun while it lasted: the numbers are those of somebody who calls at any moment. Alone, or only the faults with a word
in their names: `python -m bench.faults [WORD]`.
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
"""Between two times of getting a server into trouble, so that what is measured is the trouble and not the asking."""
SETTLED_SECONDS = 30
ANSWER_SECONDS = 30
LOOK_EVERY = 0.05
HEALTHY = "bench"
UNSETTLED = ("connecting", "not_checked")


class Trouble:
    """Gets servers into trouble until it is told to end; `times` counts how often."""

    def __init__(self, address: Address, fault: Fault) -> None:
        self._address = address
        self._requests = [(act, act.request(address)) for act in fault.acts]
        self._at_once = fault.at_once
        self._is_over = False
        self.times = 0

    async def go_on(self) -> None:
        """All who do so, each to the end of what it is at: nothing is left for the next fault."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._at_once):
                group.create_task(self._act(number))

    def end(self) -> None:
        """Begin nothing new."""
        self._is_over = True

    async def _act(self, number: int) -> None:
        connection = await Connection.open(self._address)
        try:
            while not self._is_over:
                act, request = self._requests[number % len(self._requests)]
                async with asyncio.timeout(ANSWER_SECONDS):
                    body = await connection.send(request)
                if act.told not in body:
                    raise BadAnswer(f"{act}: expected {act.told!r} in {body[:600]!r}")
                self.times += 1
                number += 1
                await asyncio.sleep(PAUSE)
        finally:
            connection.close()


async def until_settled(crib: Subject, names: Sequence[str]) -> None:
    """Wait until these servers are connected or have failed, and no others but the healthy one are there."""
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
    """Have these servers beside the healthy one."""
    write_servers(home, {HEALTHY: stdio_entry(), **servers})
    connection = await Connection.open(crib.address)
    try:
        await connection.send(plain(crib.address, "POST", "/api/servers/reload"))
    finally:
        connection.close()
    await until_settled(crib, list(servers))


async def until_known(crib: Subject, acts: Sequence[Act]) -> None:
    """Wait until the tools of these can be called, which is later than their servers are connected."""
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
    """Calls of the healthy server one at a time; what each took in milliseconds."""
    make = prepare(crib.address, "tools/call", {"name": crib.tool, "arguments": {"text": TEXT}}, crib.tool)
    return [1000 * taken for taken in await load(crib.address, make, TEXT.encode(), 1, seconds)]


def at_any_moment(latencies: Sequence[float], step: float) -> list[float]:
    """What calls take that begin each `step`, whether the one before has ended or not."""
    return [taken - over * step for taken in latencies for over in range(max(1, int(taken / step)))]


@dataclass(frozen=True)
class Felt:
    """What calls took while a fault went on and before: medians, what nine of ten stay below, the slowest."""

    what: str
    alone: tuple[float, float, float]
    beside: tuple[float, float, float]

    @classmethod
    def of(cls, what: str, alone: Sequence[float], beside: Sequence[float]) -> "Felt":
        """From all latencies."""
        step = statistics.median(alone)

        def summary(latencies: Sequence[float]) -> tuple[float, float, float]:
            tenths = statistics.quantiles(at_any_moment(latencies, step), n=10)
            return tenths[4], tenths[8], max(latencies)

        return cls(what, summary(alone), summary(beside))

    def rows(self) -> list[Row]:
        """The median is judged."""
        return [
            Row(f"call beside {self.what}, p50", "ms", self.beside[0], self.alone[0], LIMIT, True, "alone"),
            Row(f"  p90 beside {self.what}", "ms", self.beside[1], self.alone[1]),
        ]


async def put_in(crib: Subject, home: Path, fault: Fault) -> None:
    """Have the servers of a fault, ready for what is done to them."""
    await configure(crib, home, fault.servers)
    await until_known(crib, fault.acts)


async def meet(crib: Subject, home: Path, fault: Fault) -> Felt:
    """One fault that lasts from its servers being put in until they are known."""
    alone, beside = await calls(crib, ALONE_SECONDS), list[float]()
    coming = asyncio.create_task(put_in(crib, home, fault))
    while not coming.done():
        beside += await calls(crib, ALONE_SECONDS)
    await coming
    await configure(crib, home, {})
    return Felt.of(fault.what, alone, beside)


async def suffer(crib: Subject, home: Path, fault: Fault) -> Felt:
    """One fault, from its servers being put in to their being taken out."""
    await put_in(crib, home, fault)
    alone = await calls(crib, ALONE_SECONDS)
    trouble = Trouble(crib.address, fault)
    going_on = asyncio.create_task(trouble.go_on())
    await asyncio.sleep(PAUSE)
    beside = await calls(crib, fault.seconds)
    trouble.end()
    await going_on
    if not trouble.times:
        raise BadAnswer(f"There was no trouble with {fault.what}.")
    await configure(crib, home, {})
    return Felt.of(fault.what, alone, beside)


async def suffer_all(crib: Subject, home: Path, chosen: Sequence[Fault]) -> list[Felt]:
    """All faults, one after the other."""
    await until_connected(crib, 1, 1)
    await until_shown(crib, 1)
    await calls(crib, ALONE_SECONDS)
    return [await (meet if fault.is_coming else suffer)(crib, home, fault) for fault in chosen]


def measure_faults(folder: Path, word: str = "") -> list[Row]:
    """Start what is healthy and what is not, and measure; only the faults with this word."""
    home = folder / "faults"
    write_servers(home, {HEALTHY: stdio_entry()})
    with ExitStack() as stack:
        url = stack.enter_context(subjects.faulty_http_server(folder))
        crib = stack.enter_context(subjects.crib("crib", home))
        felt = uvloop.run(suffer_all(crib, home, [fault for fault in faults(url) if word in fault.what]))
    slowest = max(each.beside[2] for each in felt), max(each.alone[2] for each in felt)
    return [*(row for each in felt for row in each.rows()), Row("  slowest call beside any of them", "ms", *slowest)]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="toolcrib-bench-") as name:
        print(report.table(measure_faults(Path(name), *sys.argv[1:])))
