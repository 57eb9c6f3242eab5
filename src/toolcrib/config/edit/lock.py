"""The only writer's place in a directory, among all processes.

The lock is on the directory itself, so nothing is left behind and a process that dies gives it up.
"""

import contextlib
import os
import sys
import time
from collections.abc import Generator
from pathlib import Path

from toolcrib.errors import Unavailable

LOCK_SECONDS = 10.0
_PAUSE = 0.002

if sys.platform == "win32":

    def _try_lock(descriptor: int) -> bool:
        return True
else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextlib.contextmanager
def locked(directory: Path, seconds: float = LOCK_SECONDS) -> Generator[None]:
    """Hold the writer's place; waits for another writer, but not for ever. Raises `config.locked`."""
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    end = time.monotonic() + seconds
    try:
        while not _try_lock(descriptor):
            if time.monotonic() > end:
                raise Unavailable("config.locked", f"Another process is writing in {directory}.")
            time.sleep(_PAUSE)
        yield
    finally:
        os.close(descriptor)
