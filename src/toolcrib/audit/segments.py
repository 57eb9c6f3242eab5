"""Retention: old records leave the database in sealed segments, whole and in order, and what is erased leaves a trace.

A segment is a compressed file of lines as `export` writes them. `segments.jsonl` beside the files names each with its
range, both hashes it hangs on and the SHA-256 of the file; the chain itself records every sealing and erasing, so that
neither the database nor the folder can lose a segment unnoticed. A process may be killed at any step: the file is
whole before the chain tells of it, the chain tells before the list does, and records are deleted last.

Records that are still in the database begin where the last segment ends (`base`). The newest ones always stay.

Above: `host` runs it, the command line asks for it. Below: the store, `export`. It must never delete a record that is
not in a whole, checked and listed file.
"""

import gzip
import hashlib
import os
import sys
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, TypeAlias

import anyio
import anyio.to_thread
import orjson
from sqlalchemy import Connection, delete, func, select

from toolcrib.audit.chain import span
from toolcrib.audit.export import export, follow
from toolcrib.audit.head import Head
from toolcrib.errors import Conflict
from toolcrib.model.json import Json, JsonObject, digest
from toolcrib.model.principals import Principal
from toolcrib.store.audit import moment
from toolcrib.store.engine import Store
from toolcrib.store.files import PLAIN, claim
from toolcrib.store.schema import audit

LIST = "segments.jsonl"
MOST_RECORDS = 100_000
"""Records of one segment, at most."""
KEPT = 10_000
"""Records that stay in the database whatever their age: the end of the chain is found and resumed there."""
_AT_ONCE = 1000

Record: TypeAlias = Callable[[JsonObject], Awaitable[int]]
"""Adds a record to the chain; done when it is durable."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Records `first` to `last`, which follow `prev` and end with `hash`; gone for good once `erased_at` is set."""

    first: int
    last: int
    prev: str
    hash: str
    file: str
    sha256: str
    sealed_at: str
    erased_at: str | None = None

    def to_json(self) -> JsonObject:
        """The shape in the list and in the chain."""
        shape = asdict(self)
        renamed = {"sealedAt": shape.pop("sealed_at"), "erasedAt": shape.pop("erased_at")}
        return shape | {key: value for key, value in renamed.items() if value is not None}


class Segments:
    """The sealed segments of one chain, in a folder of their own."""

    def __init__(self, store: Store, record: Record, folder: Path) -> None:
        self._store = store
        self._record = record
        self._folder = folder
        self._lock = anyio.Lock()

    async def list(self) -> tuple[Segment, ...]:
        """All segments in order, erased ones too; raises `Conflict` (`audit.broken`) for a list with gaps."""
        return await anyio.to_thread.run_sync(_read_list, self._folder / LIST)

    async def base(self) -> Head:
        """Where the records in the database go on."""
        segments = await self.list()
        return Head(segments[-1].last, segments[-1].hash) if segments else Head()

    async def seal(self, before: datetime, *, by: Principal, keep: int = KEPT) -> tuple[Segment, ...]:
        """Move the records from before this time into segments, but for the newest; gives the new segments.

        Raises `Conflict` (`audit.broken`) at records that are not whole: those stay where they are.
        """
        sealed: list[Segment] = []
        async with self._lock:
            await anyio.to_thread.run_sync(lambda: self._folder.mkdir(mode=0o700, exist_ok=True))
            base = await self.base()
            await self._delete(base)  # as far as a killed process did not get
            last = await self._store.read(lambda connection: _last_before(connection, before, keep))
            while base.number < last:
                segment = await self._write(base, min(last, base.number + MOST_RECORDS))
                await self._record(_told("audit.seal", segment, by))
                await anyio.to_thread.run_sync(_add_to_list, self._folder / LIST, segment)
                base = Head(segment.last, segment.hash)
                await self._delete(base)
                sealed.append(segment)
        return tuple(sealed)

    async def erase(self, before: datetime, *, by: Principal) -> tuple[Segment, ...]:
        """Remove the files of segments sealed before this time; gives them. Their lines in the list stay."""
        erased: list[Segment] = []
        async with self._lock:
            for segment in await self.list():
                if segment.erased_at is not None or segment.sealed_at >= moment(before):
                    continue
                gone = replace(segment, erased_at=moment(datetime.now(UTC)))
                await self._record(_told("audit.erase", gone, by))
                await anyio.to_thread.run_sync(_add_to_list, self._folder / LIST, gone)
                await anyio.to_thread.run_sync(lambda file=gone.file: (self._folder / file).unlink(missing_ok=True))
                erased.append(gone)
        return tuple(erased)

    async def check(self) -> tuple[str, ...]:
        """Read every segment that is not erased; gives what is wrong, in words."""
        try:
            segments = await self.list()
        except Conflict as error:
            return (error.message,)
        found = [await anyio.to_thread.run_sync(_check, self._folder, each) for each in segments if not each.erased_at]
        return tuple(finding for finding in found if finding is not None)

    async def _delete(self, base: Head) -> None:
        if base.number:
            await self._store.write(delete(audit).where(audit.c.id <= base.number))

    async def _write(self, base: Head, last: int) -> Segment:
        """Write one segment and check what was written."""
        name = f"{base.number + 1:012d}-{last:012d}.jsonl.gz"
        beside = self._folder / f".{name}.tmp"
        try:
            with await anyio.to_thread.run_sync(_private, beside) as raw, gzip.GzipFile("", "wb", 6, raw, 0) as file:
                waiting: list[bytes] = []
                async for line in export(self._store, after=base.number, upto=last):
                    waiting.append(line)
                    if len(waiting) == _AT_ONCE:
                        await anyio.to_thread.run_sync(file.writelines, waiting)
                        waiting = []
                await anyio.to_thread.run_sync(file.writelines, waiting)
            end = await anyio.to_thread.run_sync(lambda: follow(_lines(beside), base))
            if end.number != last:
                raise Conflict("audit.broken", f"{span(end.number + 1, last)} missing.")
            sum256 = await anyio.to_thread.run_sync(_settle, beside, self._folder / name)
        except BaseException:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            raise
        return Segment(base.number + 1, last, base.hash, end.hash, name, sum256, moment(datetime.now(UTC)))


def _last_before(connection: Connection, before: datetime, keep: int) -> int:
    """The last record that may leave: all up to it are older, and enough come after it."""
    first_kept = connection.scalar(select(func.min(audit.c.id)).where(audit.c.at >= moment(before)))
    newest = connection.scalar(select(func.max(audit.c.id))) or 0
    return min(first_kept - 1 if first_kept is not None else newest, newest - max(keep, 1))


def _told(action: str, segment: Segment, by: Principal) -> JsonObject:
    """The chain's own record of what was done with a segment."""
    shape = segment.to_json()
    return {
        "phase": "outcome",
        "door": "library",
        "principal": by.to_json(),
        "server": "toolcrib",
        "tool": action,
        "definitionHash": None,
        "argumentsDigest": digest(shape),
        "arguments": shape,
        "decision": "allow",
        "rules": [],
        "isError": False,
    }


def _private(path: Path) -> BinaryIO:
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN, 0o600), "wb")


def _lines(path: Path) -> Iterator[bytes]:
    with gzip.open(path, "rb") as file:
        yield from file


def _settle(beside: Path, path: Path) -> str:
    """Put a whole file into its place, durably; gives its SHA-256."""
    with beside.open("rb") as file:
        os.fsync(file.fileno())
        found = hashlib.file_digest(file, "sha256").hexdigest()
    beside.replace(path)
    _sync_folder(path.parent)
    return found


def _sync_folder(folder: Path) -> None:
    if sys.platform != "win32":  # there a folder cannot be opened
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _add_to_list(path: Path, segment: Segment) -> None:
    """Add a line, durably, in the place of one that a crash left torn."""
    claim(path)
    with os.fdopen(os.open(path, os.O_RDWR | PLAIN), "r+b") as file:
        whole = file.read().rpartition(b"\n")
        file.seek(len(whole[0]) + len(whole[1]))
        file.truncate()
        file.write(orjson.dumps(segment.to_json(), option=orjson.OPT_APPEND_NEWLINE))
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(path.parent)


def _read_list(path: Path) -> tuple[Segment, ...]:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | PLAIN), "rb") as file:
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return ()
    segments: dict[int, Segment] = {}
    for number, line in enumerate(lines, 1):
        segment = _segment(line)
        if segment is None:
            raise Conflict("audit.broken", f"Line {number} of {path.name} cannot be understood.")
        segments[segment.first] = segment
    end = Head()
    for segment in segments.values():
        if (segment.first, segment.prev) != (end.number + 1, end.hash) or segment.last < segment.first:
            raise Conflict("audit.broken", f"{path.name} has a gap after record {end.number}.")
        end = Head(segment.last, segment.hash)
    return tuple(segments.values())


def _segment(line: bytes) -> Segment | None:
    try:
        shape: Json = orjson.loads(line)
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


def _check(folder: Path, segment: Segment) -> str | None:
    """What is wrong with the file of a segment."""
    path = folder / segment.file
    try:
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != segment.sha256:
                return f"{segment.file} was changed."
        end = follow(_lines(path), Head(segment.first - 1, segment.prev))
    except OSError as error:
        return f"{segment.file} cannot be read: {error.strerror or error}."
    except (Conflict, EOFError, zlib.error) as error:
        return f"{segment.file} is not whole: {error}"
    return None if end == Head(segment.last, segment.hash) else f"{segment.file} does not hold what the list says."
