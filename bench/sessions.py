"""Many readers of one session: what it costs the crib to send them everything, and that none misses an event.

Also measures the list of many stored sessions. Run alone: `python -m bench.sessions`.

"""

import asyncio
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import httpx2
import uvloop

from bench import report, subjects
from bench.chatty_crib import STORED, EventRunner
from bench.client import BadAnswer
from bench.report import Row
from bench.subjects import Subject

READERS = 100
EVENTS = 5_000
REST = 0.001
"""Seconds between two events of a fast agent."""
LISTS = 20


@dataclass
class Reader:
    """A reader of a session. `seen` is the last event number; each must be the next one."""

    seen: int = 0
    is_done: bool = False

    async def read(self, client: httpx2.AsyncClient, id: str, ready: asyncio.Semaphore, after: int) -> None:
        """Read until the answer is complete."""
        self.seen = after
        held = b""
        async with client.stream("GET", f"/api/sessions/{id}/events", params={"after": after}) as stream:
            ready.release()
            async for piece in stream.aiter_bytes():
                *whole, held = (held + piece).split(b"\n\n")
                for frame in whole:
                    self.take(frame)
                if self.is_done:
                    return

    def take(self, frame: bytes) -> None:
        """Check one event. The second line of its data separates the agent's messages from other events."""
        if frame.startswith(b"id: "):
            number, kind, _ = frame.split(b"\n", 2)
            if int(number[4:]) != self.seen + 1:
                raise BadAnswer(f"After {self.seen} came {number!r}.")
            self.seen += 1
            self.is_done = kind == b"event: done"


async def follow(crib: Subject, client: httpx2.AsyncClient, rest: float) -> tuple[float, float]:
    """Return CPU and wall seconds while all readers follow one session."""
    answer = await client.post("/api/sessions", json={"runner": EventRunner.name})
    id = answer.json()["id"]
    ready, readers = asyncio.Semaphore(0), [Reader() for _ in range(READERS)]
    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        for reader in readers:
            group.create_task(reader.read(client, id, ready, 0))
        for _ in readers:
            await ready.acquire()
        before, started = crib.cpu_seconds(), time.perf_counter()
        sent = await client.post(f"/api/sessions/{id}/messages", json={"content": f"{EVENTS} {rest}"})
        sent.raise_for_status()
    seconds = time.perf_counter() - started
    if {reader.seen for reader in readers} != {readers[0].seen} or readers[0].seen < EVENTS:
        raise BadAnswer(f"Readers saw {sorted({reader.seen for reader in readers})} events.")
    return crib.cpu_seconds() - before, seconds


async def listing(client: httpx2.AsyncClient) -> float:
    """Return the seconds for a list of all sessions."""
    taken: list[float] = []
    for _ in range(LISTS):
        started = time.perf_counter()
        answer = await client.get("/api/sessions", params={"limit": STORED})
        taken.append(time.perf_counter() - started)
        if answer.json() == []:
            raise BadAnswer("There are no sessions.")
    return statistics.median(taken)


async def measure(crib: Subject) -> list[Row]:
    """Measure everything."""
    headers = {"authorization": f"Bearer {crib.address.token}"}
    limits = httpx2.Limits(max_connections=2 * READERS)
    url = crib.address.url.removesuffix("/mcp")
    async with httpx2.AsyncClient(base_url=url, headers=headers, limits=limits, timeout=60, trust_env=False) as client:
        listed = await listing(client)
        alone = await follow_alone(crib, client)
        live, seconds = await follow(crib, client, REST)
        burst, _ = await follow(crib, client, 0)
    what = f"{READERS} readers × {EVENTS:,} events of a session"
    return [
        Row(f"list of {STORED:,} stored sessions", "ms", 1000 * listed, limit=50),
        Row(f"{what}, all at once: CPU of the crib", "s", burst, limit=1),
        Row(f"  one each {1000 * REST:g} ms, beyond no readers", "s", live - alone, limit=1),
        Row("    including producing and storing the events", "s", live),
        Row("    wall", "s", seconds),
    ]


async def follow_alone(crib: Subject, client: httpx2.AsyncClient) -> float:
    """Return the CPU seconds without readers."""
    id = (await client.post("/api/sessions", json={"runner": EventRunner.name})).json()["id"]
    before = crib.cpu_seconds()
    await client.post(f"/api/sessions/{id}/messages", json={"content": f"{EVENTS} {REST}"})
    await asyncio.sleep(1.5 * EVENTS * REST)
    await Reader().read(client, id, asyncio.Semaphore(0), 0)
    return crib.cpu_seconds() - before


def measure_sessions(folder: Path) -> list[Row]:
    """Start a crib that has many sessions, and measure."""
    with subjects.event_crib(folder / "sessions") as crib:
        return uvloop.run(measure(crib))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="toolcrib-bench-") as name:
        print(report.table(measure_sessions(Path(name))))
