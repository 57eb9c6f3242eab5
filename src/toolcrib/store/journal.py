"""Rows that are durable but not in the database yet: lines in a file beside it.

A commit costs as much as the rest of a small call, a line at a known place of an open file next to nothing. What was
written to a file survives the death of its process at any instruction. So a row counts as kept once its line is here,
and many rows share the commit that follows. When all of them are in the database the next line goes to the start again;
what stands behind it is old, and it is for the log to tell old lines and torn ones from those that count.

Above: the SQLite writer writes it; after a crash the log whose lines they are reads it. Below: the file. It must never
stop a call: what it cannot take is committed at once.
"""

import os
from pathlib import Path

from toolcrib.store.files import PLAIN, claim

_ROOM = 1024 * 1024
"""Bytes of rows that may be ahead of the database."""


class Journal:
    """The file, held open by the one process that uses it."""

    def __init__(self, path: Path) -> None:
        claim(path)
        self._descriptor = os.open(path, os.O_RDWR | PLAIN)
        self._end: int | None = None

    def read(self) -> list[bytes]:
        """All lines, also those that are old or torn."""
        return os.pread(self._descriptor, _ROOM, 0).split(b"\n")

    def clear(self) -> None:
        """All of it is in the database: lines may be written over."""
        self._end = 0

    def add(self, line: bytes) -> bool:
        """Keep a line; false if it was not kept, for want of room or for any other reason."""
        if self._end is None or self._end + len(line) >= _ROOM:
            return False
        try:
            written = os.pwrite(self._descriptor, line + b"\n", self._end)
        except OSError:
            return False
        if written <= len(line):
            return False
        self._end += written
        return True

    def close(self) -> None:
        """Let go of the file, and empty it unless something in it is still needed."""
        if self._end == 0:
            os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
