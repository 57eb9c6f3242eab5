"""Standard input and output as a line-based protocol transport.

Lines are bounded; a longer line is skipped and reported. Reading and writing happen in daemon threads: a read from a
pipe cannot be interrupted, and a client that does not read its end must block only itself. Lines are written whole and
in order, even if the waiting task is cancelled.
"""

import asyncio
import contextlib
import os
import queue
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import BinaryIO

LINE_LIMIT = 16 * 1024 * 1024
_AHEAD = 256
"""How many lines may be read ahead of their handling."""


@dataclass(frozen=True, slots=True)
class OversizedMessage:
    """Replaces a line that was longer than `limit` bytes."""

    limit: int


Line = bytes | OversizedMessage
Write = Callable[[bytes], Awaitable[None]]


@asynccontextmanager
async def protocol_pipes() -> AsyncGenerator[tuple[AsyncIterator[Line], Write]]:
    """Yield the lines of standard input and a function that writes a line to standard output.

    Inside the block, file descriptor 1 refers to standard error, so that a stray print cannot corrupt the protocol.
    """
    sys.stdout.flush()
    wire = os.dup(1)
    os.dup2(2, 1)
    writer = _Writer(wire)
    try:
        # Not `sys.stdin`: a thread still reading it at interpreter exit would hold the lock that finalization needs.
        yield _lines(os.fdopen(0, "rb", closefd=False)), writer.write
    finally:
        os.dup2(wire, 1)
        writer.close()


class _Writer:
    """Writes lines to a descriptor in a separate thread. Owns the descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._waiting: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="stdout", daemon=True).start()

    async def write(self, line: bytes) -> None:
        """Write one line and wait until it is written."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._waiting.put((line + b"\n", done))
        await done

    def close(self) -> None:
        """Stop the thread once all lines are written."""
        self._waiting.put(None)

    def _run(self) -> None:
        while (item := self._waiting.get()) is not None:
            line, done = item
            failure: OSError | None = None
            try:
                _write_all(self._descriptor, line)
            except OSError as error:
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop may be closed
                self._loop.call_soon_threadsafe(_settle, done, failure)
        os.close(self._descriptor)


def _settle(done: "asyncio.Future[None]", failure: OSError | None) -> None:
    if done.done():
        return
    if failure is None:
        done.set_result(None)
    else:
        done.set_exception(failure)


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
        yield OversizedMessage(limit)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
