"""Reads and writes the files of sealed segments and their list, in a crash-safe way.

Must never move a file into place that is not completely on disk.
"""

import gzip
import hashlib
import os
import sys
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import anyio.to_thread
import orjson

from toolcrib.base.files.private import PLAIN, claim
from toolcrib.gate.audit.change_body import SERVER
from toolcrib.gate.audit.export import follow
from toolcrib.gate.audit.head import ChainHead, beginning
from toolcrib.model.errors import Conflict
from toolcrib.model.json import Json, JsonObject, dumps, is_object, loads
from toolcrib.store.audit_lanes import lane_of

SEALING = "audit.seal"
"""The kind of change that records that records were moved into a segment."""
ERASING = "audit.erase"
"""The kind of change that records the removal of a segment's file."""
AT_ONCE = 1000
"""Lines read or written in one batch."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Records `first` to `last`, which follow `prev` and end with `hash`. `erased_at` is set if the file is removed."""

    first: int
    last: int
    prev: str
    hash: str
    file: str
    sha256: str
    sealed_at: str
    erased_at: str | None = None

    def to_json(self) -> JsonObject:
        """Return the JSON used in the list and in the chain."""
        shape = asdict(self)
        renamed = {"sealedAt": shape.pop("sealed_at"), "erasedAt": shape.pop("erased_at")}
        return shape | {key: value for key, value in renamed.items() if value is not None}


def erasing_of(record: JsonObject) -> int | None:
    """Return the first record of the segment whose erasure this record describes, or None."""
    arguments = record.get("arguments")
    if (record.get("server"), record.get("tool")) != (SERVER, ERASING) or not is_object(arguments):
        return None
    first = arguments.get("first")
    return first if isinstance(first, int) else None


def sealing_of(record: JsonObject) -> ChainHead | None:
    """Return the end of the segment whose sealing this record describes, or None."""
    if (record.get("server"), record.get("tool")) != (SERVER, SEALING):
        return None
    match record.get("arguments"):
        case {"last": int(last), "hash": str(digest)}:
            return ChainHead(last, digest)
        case _:
            return None


def number_of(line: bytes) -> int:
    """Return the number of the record in a line, which is its first member."""
    return int(line[len('{"id":') : line.index(b",")])


async def sealed_lines(path: Path, after: int, upto: int | None) -> AsyncIterator[bytes]:
    """Yield the lines of a segment between two records. Raises `Conflict` (`audit.broken`) if the file is damaged."""
    try:
        with await anyio.to_thread.run_sync(gzip.GzipFile, path, "rb") as file:
            while some := await anyio.to_thread.run_sync(lambda: list(islice(file, AT_ONCE))):
                for line in some:
                    number = number_of(line)
                    if after < number and (upto is None or number <= upto):
                        yield line
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise Conflict("audit.broken", f"{path.name} is incomplete: {error}") from error


def private(path: Path) -> BinaryIO:
    """Create a file that only this user can read, replacing one left by a crash."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN, 0o600), "wb")


def lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a segment."""
    with gzip.open(path, "rb") as file:
        yield from file


def settle(beside: Path, path: Path) -> str:
    """Move a complete file into place durably, and return its SHA-256."""
    with beside.open("rb") as file:
        os.fsync(file.fileno())
        found = hashlib.file_digest(file, "sha256").hexdigest()
    beside.replace(path)
    _sync_folder(path.parent)
    return found


def _sync_folder(folder: Path) -> None:
    if sys.platform != "win32":  # Windows cannot open a folder
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def add_to_list(path: Path, segment: Segment) -> None:
    """Append a line durably, replacing a torn one left by a crash."""
    claim(path)
    with os.fdopen(os.open(path, os.O_RDWR | PLAIN), "r+b") as file:
        whole = file.read().rpartition(b"\n")
        file.seek(len(whole[0]) + len(whole[1]))
        file.truncate()
        file.write(dumps(segment.to_json(), option=orjson.OPT_APPEND_NEWLINE))
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(path.parent)


def read_list(path: Path, *, is_whole: bool = True) -> tuple[Segment, ...]:
    """Return all listed segments in order. Raises `Conflict` (`audit.broken`) for a list with gaps.

    Without `is_whole`, other homes may have sealed other parts.
    """
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | PLAIN), "rb") as file:
            written = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return ()
    segments: dict[int, Segment] = {}
    for number, line in enumerate(written, 1):
        segment = _segment(line)
        if segment is None:
            raise Conflict("audit.broken", f"Line {number} of {path.name} is invalid.")
        segments[segment.first] = segment
    if not is_whole:
        return tuple(segments[first] for first in sorted(segments))
    end = beginning(lane_of(next(iter(segments), 0)))
    for segment in segments.values():
        if (segment.first, segment.prev) != (end.number + 1, end.hash) or segment.last < segment.first:
            raise Conflict("audit.broken", f"{path.name} has a gap after record {end.number}.")
        end = ChainHead(segment.last, segment.hash)
    return tuple(segments.values())


def _segment(line: bytes) -> Segment | None:
    try:
        shape: Json = loads(line)
    except orjson.JSONDecodeError:
        return None
    match shape:
        case {
            "first": int(first),
            "last": int(last),
            "prev": str(prev),
            "hash": str(end),
            "file": str(file),
            "sha256": str(sum256),
            "sealedAt": str(sealed_at),
        } if file == Path(file).name:
            return Segment(first, last, prev, end, file, sum256, sealed_at, shape.get("erasedAt"))
        case _:
            return None


def check(folder: Path, segment: Segment) -> tuple[str | None, tuple[int, ...]]:
    """Return the problem with a segment's file, or None, and the erasures its records describe."""
    path = folder / segment.file
    erasures: list[int] = []

    def watch_lines() -> Iterator[bytes]:
        for line in lines(path):
            if ERASING.encode() in line and (first := erasing_of(loads(line))) is not None:
                erasures.append(first)
            yield line

    try:
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != segment.sha256:
                return f"{segment.file} was changed.", ()
        end = follow(watch_lines(), ChainHead(segment.first - 1, segment.prev))
    except OSError as error:
        return f"{segment.file} cannot be read: {error.strerror or error}.", ()
    except (Conflict, EOFError, zlib.error, orjson.JSONDecodeError) as error:
        return f"{segment.file} is incomplete: {error}", ()
    if end != ChainHead(segment.last, segment.hash):
        return f"{segment.file} does not match the list of sealed records.", ()
    return None, tuple(erasures)
