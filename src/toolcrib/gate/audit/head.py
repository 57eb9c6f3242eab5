"""The end of the chain, stored outside the database to detect that the newest records were cut off.

The file `audit.head` starts with one line of fixed width, the number and hash of the newest record, overwritten after
every commit. Each mismatch between the chain and that line adds a line below it. The file is not synced: it may lag
behind the database. Must never lose one of the added lines.
"""

import logging
import os
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol

import orjson
from sqlalchemy import Connection

from toolcrib.base.files.private import PLAIN, claim
from toolcrib.model.json import Json, is_object, loads
from toolcrib.store.audit_lanes import lane_begin, lane_start

logger = logging.getLogger(__name__)

GENESIS = "0" * 64
"""The hash before the first record."""
_FIRST_LINE = re.compile(rb"(0[0-8]\d{18}) ([0-9a-f]{64})\n")  # within a signed 64-bit integer
_WIDTH = 20 + 1 + 64 + 1
_LARGEST = 64 * 1024


class ChainHead(NamedTuple):
    """A position in the chain: number and hash of a record."""

    number: int = 0
    hash: str = GENESIS


def beginning(lane: int) -> ChainHead:
    """Return the position before the first record of a lane."""
    return ChainHead(lane_start(lane))


class HeadContent(NamedTuple):
    """The content of the file. `head` is None if it cannot be parsed."""

    head: ChainHead | None
    notes: tuple[str, ...]


def read_head(path: Path) -> HeadContent | None:
    """Read the file. Returns None if it is missing, or empty after a crash during its creation."""
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
    head = ChainHead(int(first[1]), first[2].decode()) if first else None
    notes = content[first.end() if first else 0 :].decode(errors="replace").splitlines()
    return HeadContent(head, tuple(notes))


class Signer(Protocol):
    """Signs every head that is written; see `signing.SignatureFile`."""

    def write(self, head: ChainHead) -> None:
        """Sign this head. Must not raise."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class HeadFile:
    """The head file, opened for writing."""

    def __init__(self, path: Path) -> None:
        claim(path)
        self._path = path
        self._descriptor = os.open(path, os.O_RDWR | PLAIN)
        self._closed = self._failed = False
        self._signer: Signer | None = None

    def close(self) -> None:
        """Close the file. It may then lag behind later commits."""
        os.close(self._descriptor)
        if self._signer is not None:
            self._signer.close()
        self._closed = True

    def sign_with(self, signer: Signer, head: ChainHead) -> None:
        """Sign this head now, and every later one when it is written."""
        if self._closed:
            signer.close()
            return
        self._signer = signer
        signer.write(head)

    def write(self, head: ChainHead) -> None:
        """Write the first line. A failure is logged and leaves the file behind the database, which is allowed."""
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
                logger.warning(
                    "%s cannot be written (%s); missing records at the end may go unnoticed.",
                    self._path,
                    error.strerror,
                )
            self._failed = True
        else:
            self._failed = False
        if self._signer is not None:
            self._signer.write(head)

    def note(self, sentence: str) -> None:
        """Append a finding below the first line, for every later verification."""
        logger.error("Audit: %s", sentence)
        line = f"{datetime.now(UTC).isoformat(timespec='seconds')} {sentence}\n"
        try:
            os.lseek(self._descriptor, max(os.fstat(self._descriptor).st_size, _WIDTH), os.SEEK_SET)
            os.write(self._descriptor, line.encode())
            os.fsync(self._descriptor)
        except OSError as error:
            logger.warning("%s cannot be written: %s.", self._path, error.strerror)


def base_of(connection: Connection, lane: int) -> ChainHead:
    """Return the position before the oldest record of a lane in the database, as that record states it."""
    oldest = lane_begin(connection, lane)
    if oldest is None:
        return beginning(lane)
    try:
        record: Json = loads(oldest[1] if isinstance(oldest[1], bytes) else b"null")
    except orjson.JSONDecodeError:
        record = None
    prev = record.get("prev") if is_object(record) else None
    is_first = oldest[0] == lane_start(lane) + 1
    return beginning(lane) if is_first or not isinstance(prev, str) else ChainHead(oldest[0] - 1, prev)
