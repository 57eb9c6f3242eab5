"""Writer lock on a directory, between processes.

The lock is on the directory itself, so no lock file is left behind, and it is released when the process dies.
"""

import contextlib
import os
import sys
import time
from collections.abc import Generator
from pathlib import Path

from toolcrib.model.errors import Unavailable

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
    """Hold the writer lock of a directory. Raises `config.locked` if another writer holds it for too long."""
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
