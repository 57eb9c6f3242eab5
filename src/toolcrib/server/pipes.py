"""Standard input and output as the wire of a protocol: lines in, lines out, nothing else on either.

Lines are bounded; one that is longer is passed over whole and reported. Reading happens in a thread that does not keep
the process alive, because nothing can interrupt a read of a pipe. Writing waits in a thread, so that a client that does
not read stops nobody but itself.
"""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import BinaryIO

import anyio
import anyio.to_thread

LINE_LIMIT = 16 * 1024 * 1024
_AHEAD = 256
"""How many lines may be read before they are handled."""


@dataclass(frozen=True, slots=True)
class Oversized:
    """Stands for a line that was longer than `limit` bytes."""

    limit: int


Line = bytes | Oversized
Write = Callable[[bytes], Awaitable[None]]


@asynccontextmanager
async def protocol_pipes() -> AsyncGenerator[tuple[AsyncIterator[Line], Write]]:
    """The lines of standard input and how to write a line to standard output.

    Inside the block file descriptor 1 is standard error, so that a stray print of a tool cannot break the protocol.
    """
    sys.stdout.flush()
    wire = os.dup(1)
    os.dup2(2, 1)
    lock = anyio.Lock()

    async def write(line: bytes) -> None:
        async with lock:
            await anyio.to_thread.run_sync(_write_all, wire, line + b"\n")

    try:
        # Not `sys.stdin`: a thread that still reads it when the interpreter ends would hold the lock its end needs.
        yield _lines(os.fdopen(0, "rb", closefd=False)), write
    finally:
        os.dup2(wire, 1)
        os.close(wire)


async def _lines(stream: BinaryIO, limit: int = LINE_LIMIT) -> AsyncIterator[Line]:
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Line | None] = asyncio.Queue()
    room = threading.BoundedSemaphore(_AHEAD)

    def read() -> None:
        for line in _bounded_lines(stream, limit):
            room.acquire()
            loop.call_soon_threadsafe(queue.put_nowait, line)
        loop.call_soon_threadsafe(queue.put_nowait, None)

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while (line := await queue.get()) is not None:
        room.release()
        if line:
            yield line


def _bounded_lines(stream: BinaryIO, limit: int) -> Iterator[Line]:
    while line := stream.readline(limit + 1):
        if len(line) <= limit or line.endswith(b"\n"):
            yield line.strip()
            continue
        while (rest := stream.readline(limit)) and not rest.endswith(b"\n"):
            pass
        yield Oversized(limit)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
