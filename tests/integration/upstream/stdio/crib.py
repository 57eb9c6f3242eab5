"""A crib reduced to its processes, for tests that kill it: starts servers and prints their process ids.

Usage: python crib.py RECORDS -- WAYS -- WAYS …
"""

import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import orjson

from integration.upstream.stdio.harness import call, connect
from toolcrib.base.processes.process import Processes


def marker_of(records: Path) -> str:
    """Return a marker that differs for each test, since several run at once."""
    return f"killed-crib-{records.parent.name}"


async def main(records: str, words: list[str]) -> None:
    """Start all servers, print their process ids, and wait to be killed."""
    servers: list[list[str]] = []
    for word in words:
        if word == "--":
            servers.append([])
        else:
            servers[-1].append(word)
    async with AsyncExitStack() as stack:
        environment = {"PATH": os.environ["PATH"]}
        processes = await stack.enter_async_context(Processes(environment, marker_of(Path(records)), Path(records)))
        pids: list[int] = []
        for ways in servers:
            connection = await stack.enter_async_context(connect(processes, "ignores_shutdown", *ways))
            pids += (await call(connection)).values()
        sys.stdout.buffer.write(orjson.dumps(pids) + b"\n")
        sys.stdout.buffer.flush()
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2:])
