"""Has files parsed by a worker process, and survives its crashes.

A worker that exits or times out on a batch is restarted and gets the files of that batch one by one. This identifies
the offending file, and only that file is lost.

Must never leave a process behind.
"""

import subprocess
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import orjson
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from toolcrib.agents.symbols.entries import SourceFile, of_wire
from toolcrib.model.errors import Unavailable

TOGETHER: Final = 8
"""Files per request."""
TIMEOUT: Final = 20.0
"""Seconds allowed for one request."""
MOST_ENDED: Final = 10
"""After this many crashes the cause is not the files."""
COMMAND: Final = (sys.executable, "-P", "-m", "toolcrib.agents.symbols.worker")
_KEPT: Final = (
    "PATH",
    "HOME",
    "PYTHONPATH",
    "PYTHONHOME",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "SYSTEMROOT",
    "LANG",
)
_LARGEST_ANSWER: Final = 256 * 1024 * 1024

Wanted = tuple[str, str]
"""A file's relative path and its language."""


async def parse(
    root: Path, files: Sequence[Wanted], environment: Mapping[str, str], take: Callable[[str, SourceFile], None]
) -> None:
    """Parse files and pass each result to `take`. Raises `code.failed` if the worker keeps crashing."""
    waiting = deque([list(files[at : at + TOGETHER]) for at in range(0, len(files), TOGETHER)])
    ended = 0
    while waiting:
        async with _start_worker(environment) as process, aclosing(_answers(process, root, waiting)) as answers:
            async for asked, sources in answers:
                for (file, _), source in zip(asked, sources, strict=True):
                    take(file, source)
        if not waiting:
            return
        ended += 1
        if ended >= MOST_ENDED:
            raise Unavailable("code.failed", f"The parser process ended {ended} times.")
        blamed = waiting.popleft()
        if len(blamed) == 1:
            take(blamed[0][0], SourceFile("", failed="The parser process ended or timed out."))
        waiting.extendleft([each] for each in (reversed(blamed) if len(blamed) > 1 else ()))


async def _answers(
    process: Process, root: Path, waiting: deque[list[Wanted]]
) -> AsyncGenerator[tuple[list[Wanted], list[SourceFile]]]:
    """Yield the answer to one request after another. A request without an answer stays first in `waiting`."""
    assert process.stdin is not None
    assert process.stdout is not None
    answers = BufferedByteReceiveStream(process.stdout)
    while waiting:
        asked = waiting[0]
        try:
            with anyio.fail_after(TIMEOUT):
                await process.stdin.send(orjson.dumps({"root": str(root), "files": asked}) + b"\n")
                length = int.from_bytes(await answers.receive_exactly(4), "big")
                if length > _LARGEST_ANSWER:
                    return
                written = await answers.receive_exactly(length)
        except (TimeoutError, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return
        sources = await anyio.to_thread.run_sync(_read, asked, written)  # the answer can be large
        waiting.popleft()
        yield asked, sources


def _read(asked: Sequence[Wanted], written: bytes) -> list[SourceFile]:
    return [of_wire(file, wire) for (file, _), wire in zip(asked, orjson.loads(written), strict=True)]


@asynccontextmanager
async def _start_worker(environment: Mapping[str, str]) -> AsyncGenerator[Process]:
    """Start a worker. `-P` keeps it from importing modules from the current directory."""
    process = await anyio.open_process(
        COMMAND,
        env={name: environment[name] for name in _KEPT if name in environment},
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C in the terminal is meant for the crib
    )
    try:
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()
