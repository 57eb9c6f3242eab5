"""One process of the bench with cribs on a shared database: `python -m bench.node_process ROLE FOLDER URL …`.

It prints JSON lines: `ready`, then what its role measures. `idle N` holds N nodes, `publish N RATE` publishes events,
`receive N` prints how late they arrived, `turn` runs an endless turn, and `wait` prints when it continues one.

"""

import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import anyio

from toolcrib import Crib, Settings
from toolcrib.agents.sessions.sessions import NewSession
from toolcrib.model.events import Event
from toolcrib.testing.environments import bare_environment
from toolcrib.testing.played import PlayedRunner

KIND = "notice"
TICK_SECONDS = 0.005


def report(event: str, **data: object) -> None:
    """Print one line of JSON."""
    print(json.dumps({"event": event, **data}), flush=True)


async def open_node(stack: AsyncExitStack, folder: Path, url: str) -> Crib:
    """Open a node with scripted agents until the stack closes."""
    user = folder / "user"
    user.mkdir(parents=True, exist_ok=True)
    settings = Settings(home=folder / "crib", port=0, default_cwd=user, database_url=url)
    crib = await stack.enter_async_context(Crib(settings, environment=bare_environment(user)))
    runner = PlayedRunner({"hang": [{"hang_s": 3600}]})
    runner.name = "claude"
    crib.runners.add(runner)
    return crib


async def publish(crib: Crib, count: int, rate: int) -> None:
    """Publish events at this rate, in small batches, each with its time."""
    started, number = time.monotonic(), 0
    while number < count:
        await anyio.sleep(TICK_SECONDS)
        for _ in range(min(count, int(rate * (time.monotonic() - started))) - number):
            crib.feed.publish(KIND, {"level": "info", "message": str(number), "sent": time.monotonic()})
            number += 1
    report("published", seconds=time.monotonic() - started)
    await anyio.sleep_forever()


async def receive(crib: Crib, count: int) -> None:
    """Receive the events of another node and print the 99th percentile of their delays."""
    late: list[float] = []
    done = anyio.Event()

    def take(event: Event) -> None:
        if event.kind == KIND and "sent" in event.data:
            late.append(time.monotonic() - float(event.data["sent"]))
            if len(late) >= count:
                done.set()

    crib.feed.listen(take, "remote")
    report("ready")
    with anyio.move_on_after(60):
        await done.wait()
    late.sort()
    report("received", count=len(late), p99_ms=1000 * late[int(len(late) * 0.99) - 1] if late else None)


async def run(role: str, folder: Path, url: str, *more: str) -> None:
    """Run the role."""
    async with AsyncExitStack() as stack:
        if role == "idle":
            for number in range(int(more[0])):
                await open_node(stack, folder / str(number), url)
            report("ready")
            await anyio.sleep_forever()
        crib = await open_node(stack, folder, url)
        if role == "receive":
            await receive(crib, int(more[0]))
        elif role == "publish":
            report("ready")
            await publish(crib, int(more[0]), int(more[1]))
        elif role == "turn":
            session = await crib.sessions.create(NewSession("api"))
            await crib.sessions.send(session.id, "[[script:hang]]")
            report("ready")
            await anyio.sleep_forever()
        else:
            report("ready")
            while not crib.sessions.active():  # noqa: ASYNC110 no event to wait for
                await anyio.sleep(0.02)
            report("continued", at=time.monotonic())
            await crib.sessions.stop_all("measured")


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
