"""A program that records calls until it is killed.

Usage: `python writer.py DATABASE HEAD COUNT CALLERS shared|alone`. For each line on standard input it forks a process
that prints its process id, then the number of every record once it is durable; `ended` when the process is gone.
Forking avoids repeated imports.
"""

import asyncio
import importlib
import os
import sys
from pathlib import Path

from toolcrib.gate.audit.audit import Audit
from toolcrib.store.engine import open_store


def write_line(line: str) -> None:
    os.write(1, f"{line}\n".encode())


async def record(database: str, head: Path, count: int, callers: int, alone: bool) -> None:
    """Record concurrently, with a different size per caller."""
    async with open_store(database, alone=alone) as store, Audit(store, head) as audit:

        async def keep_recording(size: int) -> None:
            for number in range(count):
                write_line(str(await audit.record({"phase": "intent", "number": number, "text": "x" * size})))
                await asyncio.sleep(0)

        await asyncio.gather(*(keep_recording(size * 97) for size in range(callers)))


def main() -> None:
    database, head, count, callers, alone = sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:5]), sys.argv[5]
    if database.startswith("postgresql:"):
        importlib.import_module("toolcrib.store.postgres")
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            write_line(f"pid {os.getpid()}")
            asyncio.run(record(database, head, count, callers, alone == "alone"))
            os._exit(0)
        os.waitpid(child, 0)
        write_line("ended")


if __name__ == "__main__":
    main()
