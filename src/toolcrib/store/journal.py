"""A journal file of rows that are durable but not in the database yet.

A commit costs as much as the rest of a small call; a write to an open file is almost free and survives the death of its
process. A row is durable once its line is here, and many rows share the commit that follows. When all of them are in
the database, writing restarts at the beginning. Lines after that point are old; the log has to distinguish old and torn
lines from valid ones. The first line names the journal, so that one removed or replaced after a crash is noticed.

Must never stop a call: a row that does not fit is committed immediately.
"""

import os
import re
from pathlib import Path

from toolcrib.base.files.private import PLAIN, claim

_NAME = re.compile(rb"journal ([0-9a-f]{32})\n")
_NAME_LENGTH = 41
_ROOM = 1024 * 1024
"""Maximum bytes of rows ahead of the database."""


class Journal:
    """The file, held open by the one process that uses it."""

    def __init__(self, path: Path) -> None:
        claim(path)
        self._descriptor = os.open(path, os.O_RDWR | PLAIN)
        named = _NAME.match(os.pread(self._descriptor, _NAME_LENGTH, 0))
        self.found = named[1].decode() if named is not None else None
        """The id of the journal that was found; None if it is new, empty or damaged."""
        self.is_over = False
        """Whether the id is no longer referenced."""
        self._end: int | None = None

    def read(self) -> list[bytes]:
        """Return all lines, including old and torn ones."""
        return os.pread(self._descriptor, _ROOM, _NAME_LENGTH if self.found is not None else 0).split(b"\n")

    def begin(self, id: str) -> bool:
        """Name the journal and restart at its beginning; its rows must be in the database. Return False on failure."""
        line = b"journal %b\n" % id.encode()
        assert len(line) == _NAME_LENGTH
        try:
            # In this order: if killed in between, the journal has its name and only old lines.
            is_named = os.pwrite(self._descriptor, line, 0) == _NAME_LENGTH
            os.ftruncate(self._descriptor, _NAME_LENGTH)
        except OSError:
            is_named = False
        self._end = _NAME_LENGTH if is_named else None
        return is_named

    def clear(self) -> None:
        """Allow lines to be overwritten: all of them are in the database."""
        if self._end is not None:
            self._end = _NAME_LENGTH

    def add(self, line: bytes) -> bool:
        """Write a line; return False if there is no room or writing fails."""
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
        """Close the file, and empty it unless it is still needed."""
        if self._end == _NAME_LENGTH:
            os.ftruncate(self._descriptor, 0 if self.is_over else _NAME_LENGTH)
        os.close(self._descriptor)
