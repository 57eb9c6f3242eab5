"""A crib reduced to its processes, to be killed: starts the servers it is told to and prints their process ids.

python crib.py RECORDS -- WAYS -- WAYS …
"""

import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import orjson

from integration.upstream.stdio.harness import call, talk
from toolcrib.base.processes.process import Processes


def marker_of(records: Path) -> str:
    """The marker of a crib, another one for each test: several run at once."""
    return f"killed-crib-{records.parent.name}"


async def main(records: str, words: list[str]) -> None:
    """Start everything, say so, and wait to be killed."""
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
            connection = await stack.enter_async_context(talk(processes, "ignores_shutdown", *ways))
            pids += (await call(connection)).values()
        sys.stdout.buffer.write(orjson.dumps(pids) + b"\n")
        sys.stdout.buffer.flush()
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2:])
