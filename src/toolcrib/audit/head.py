"""The end of the chain, kept outside the database: without it nobody could tell that the newest records were cut off.

The file `audit.head` is one line of fixed width, number and hash of the newest record, written over after every commit;
below it, one line for each time the chain was found not to be what the first line said. It is not forced to the disk:
if it is behind the database nothing is wrong. It must never lose a line of the second kind.
"""

import logging
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from toolcrib.store.files import PLAIN, claim

logger = logging.getLogger(__name__)

GENESIS = "0" * 64
"""What the first record follows."""
_FIRST_LINE = re.compile(rb"(0[0-8]\d{18}) ([0-9a-f]{64})\n")  # as far as databases count
_WIDTH = 20 + 1 + 64 + 1
_LARGEST = 64 * 1024


class Head(NamedTuple):
    """A place in the chain: number and hash of a record."""

    number: int = 0
    hash: str = GENESIS


class HeadContent(NamedTuple):
    """What the file says; no head where it cannot be understood."""

    head: Head | None
    notes: tuple[str, ...]


def read_head(path: Path) -> HeadContent | None:
    """What the file says; None if there is none, or an empty one that a crash left while making it."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | PLAIN), "rb") as file:
            content = file.read(_LARGEST)
    except FileNotFoundError:
        return None
    except OSError:  # a link, a pipe or a directory took its place
        return HeadContent(None, ())
    if not content:
        return None
    first = _FIRST_LINE.match(content)
    head = Head(int(first[1]), first[2].decode()) if first else None
    notes = content[first.end() if first else 0 :].decode(errors="replace").splitlines()
    return HeadContent(head, tuple(notes))


class HeadFile:
    """The file, held open to be written."""

    def __init__(self, path: Path) -> None:
        claim(path)
        self._path = path
        self._descriptor = os.open(path, os.O_RDWR | PLAIN)
        self._closed = self._failed = False

    def close(self) -> None:
        """Let go of the file. What the store commits later leaves it behind, which is allowed."""
        os.close(self._descriptor)
        self._closed = True

    def write(self, head: Head) -> None:
        """Set the first line. A failure is logged and leaves the file behind, which is allowed."""
        if self._closed:
            return
        line = b"%020d %b\n" % (head.number, head.hash.encode())
        try:
            if sys.platform == "win32":
                os.lseek(self._descriptor, 0, os.SEEK_SET)
                os.write(self._descriptor, line)
            else:
                os.pwrite(self._descriptor, line, 0)
        except OSError as error:
            if not self._failed:
                logger.warning("%s cannot be written (%s); a cut tail may go unnoticed.", self._path, error.strerror)
            self._failed = True
        else:
            self._failed = False

    def note(self, sentence: str) -> None:
        """Keep what was found, below the first line, for every later verification."""
        logger.error("Audit: %s", sentence)
        line = f"{datetime.now(UTC).isoformat(timespec='seconds')} {sentence}\n"
        try:
            os.lseek(self._descriptor, max(os.fstat(self._descriptor).st_size, _WIDTH), os.SEEK_SET)
            os.write(self._descriptor, line.encode())
            os.fsync(self._descriptor)
        except OSError as error:
            logger.warning("%s cannot be written: %s.", self._path, error.strerror)
