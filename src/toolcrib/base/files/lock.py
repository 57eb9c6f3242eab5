"""Locks between processes: `try_lock` on an open file, `locked` for the writers of a directory.

The writer lock is on the directory itself, so no lock file is left behind. The system releases the locks of a process
that dies.
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
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def try_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed. Returns False if another process holds the lock. Raises `OSError`."""
    try:
        _lock(descriptor)
    except (BlockingIOError, PermissionError):
        return False
    return True


@contextlib.contextmanager
def locked(directory: Path, seconds: float = LOCK_SECONDS) -> Generator[None]:
    """Hold the writer lock of a directory. Raises `config.locked` if another writer holds it for too long.

    Windows cannot lock a directory; there the block runs without a lock.
    """
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    end = time.monotonic() + seconds
    try:
        while not try_lock(descriptor):
            if time.monotonic() > end:
                raise Unavailable("config.locked", f"Another process is writing in {directory}.")
            time.sleep(_PAUSE)
        yield
    finally:
        os.close(descriptor)
