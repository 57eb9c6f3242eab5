"""Properties of the files of a SQLite database. Not a test itself."""

import contextlib
import resource
import stat
import struct
from collections.abc import Generator
from pathlib import Path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def size(path: Path) -> int:
    return path.stat().st_size


def sibling(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def commits_in_log(path: Path) -> int:
    """Count the transactions in the write-ahead log: frames that carry the size of the database after a commit."""
    log = sibling(path, "-wal").read_bytes()
    if not log:
        return 0
    page = struct.unpack(">I", log[8:12])[0]
    frames = range(32, len(log), 24 + page)
    return sum(struct.unpack(">I", log[start + 4 : start + 8])[0] > 0 for start in frames)


@contextlib.contextmanager
def file_size_limit(size: int) -> Generator[None]:
    """Limit the size of files that this process writes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
