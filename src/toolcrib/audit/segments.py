"""Retention: old records leave the database in sealed segments, whole and in order, and what is erased leaves a trace.

A segment is a compressed file of lines as `export` writes them. `segments.jsonl` beside the files names each with its
range, both hashes it hangs on and the SHA-256 of the file; the chain itself records every sealing and erasing, so that
neither the database nor the folder can lose a segment unnoticed, nor one pass for erased that was not. A process may
be killed at any step: the file is whole before the chain tells of it, the chain tells before the list does, and records
are deleted last.

Records that are still in the database begin where the last segment ends (`base`). The newest ones always stay.

Above: the audit has one, `host` lets it follow a setting, the command line asks for it. Below: the store, `export`. It
must never delete a record that is not in a whole, checked and listed file.
"""

import gzip
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.to_thread
from sqlalchemy import Connection, delete, func, select

from toolcrib.audit.chain import span
from toolcrib.audit.export import export, follow
from toolcrib.audit.head import Head
from toolcrib.audit.segment_files import (
    AT_ONCE,
    ERASING,
    Segment,
    add_to_list,
    check,
    lines,
    number_of,
    private,
    read_list,
    sealed_lines,
    settle,
)
from toolcrib.audit.told import change
from toolcrib.errors import Conflict
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.store.audit import moment
from toolcrib.store.engine import Store
from toolcrib.store.schema import audit

LIST = "segments.jsonl"
MOST_RECORDS = 100_000
"""Records of one segment, at most."""
KEPT = 100
"""Records that stay in the database whatever their age: the end of the chain is found and resumed there."""
FIRST_LOOK = 60.0
"""Seconds after the start at which old records are first looked for: a command that runs for a moment does not."""
LOOK_EVERY = 24 * 3600.0

_BEGINNING = Head()

logger = logging.getLogger(__name__)

Record: TypeAlias = Callable[[JsonObject], Awaitable[int]]
"""Adds a record to the chain; done when it is durable."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """What was found in the segments: how many records, where those in the database go on, and what is wrong.

    `erased` are the segments that are said to be erased, `told` the first records of those whose erasing a record in a
    segment tells of.
    """

    base: Head = _BEGINNING
    records: int = 0
    findings: tuple[str, ...] = ()
    erased: tuple[Segment, ...] = ()
    told: frozenset[int] = frozenset()


class Segments:
    """The sealed segments of one chain, in a folder of their own."""

    def __init__(self, store: Store, record: Record, folder: Path) -> None:
        self._store = store
        self._record = record
        self._folder = folder
        self._lock = anyio.Lock()

    async def list(self) -> tuple[Segment, ...]:
        """All segments in order, erased ones too; raises `Conflict` (`audit.broken`) for a list with gaps."""
        return await anyio.to_thread.run_sync(read_list, self._folder / LIST)

    async def base(self) -> Head:
        """Where the records in the database go on."""
        segments = await self.list()
        return Head(segments[-1].last, segments[-1].hash) if segments else Head()

    def steady(self) -> AbstractAsyncContextManager[None]:
        """While this is held, nothing is sealed or erased."""
        return self._lock

    async def follow(self, days: int, *, by: Principal) -> None:
        """Seal what is older than so many days, once a day, for as long as this runs."""
        await anyio.sleep(FIRST_LOOK)
        while True:
            try:
                for segment in await self.seal(datetime.now(UTC) - timedelta(days=days), by=by, door="library"):
                    logger.info("Sealed records %d to %d in %s.", segment.first, segment.last, segment.file)
            except Exception:  # boundary: what cannot be sealed stays where it is, and the next look may work
                logger.exception("Old records cannot be sealed.")
            await anyio.sleep(LOOK_EVERY)

    async def export(self, after: int = 0, upto: int | None = None) -> AsyncIterator[bytes]:
        """The lines of the whole chain in order, of segments and database; what was erased is not there.

        Records may be sealed meanwhile: what is no longer in the database is looked for in the segments again.
        """
        while upto is None or after < upto:
            page = [line async for line in export(self._store, after=after, upto=upto, most=AT_ONCE)]
            segments = [each for each in await self.list() if each.last > after]
            if segments and (not page or number_of(page[0]) > after + 1):
                if segments[0].erased_at is None:
                    async for line in sealed_lines(self._folder / segments[0].file, after, upto):
                        yield line
                after = segments[0].last
                continue
            for line in page:
                yield line
            if len(page) < AT_ONCE:
                return
            after = number_of(page[-1])

    async def seal(
        self, before: datetime, *, by: Principal, door: str = "library", keep: int = KEPT
    ) -> tuple[Segment, ...]:
        """Move the records from before this time into segments, but for the newest; gives the new segments.

        Raises `Conflict` (`audit.broken`) at records that are not whole: those stay where they are.
        """
        sealed: list[Segment] = []
        await self._store.caught_up()
        async with self._lock:
            await anyio.to_thread.run_sync(lambda: self._folder.mkdir(mode=0o700, exist_ok=True))
            base = await self.base()
            await self._delete(base)  # as far as a killed process did not get
            last = await self._store.read(lambda connection: _last_before(connection, before, keep))
            while base.number < last:
                segment = await self._write(base, min(last, base.number + MOST_RECORDS))
                await self._tell("audit.seal", segment, by, door)
                await anyio.to_thread.run_sync(add_to_list, self._folder / LIST, segment)
                base = Head(segment.last, segment.hash)
                await self._delete(base)
                sealed.append(segment)
        return tuple(sealed)

    async def erase(self, before: datetime, *, by: Principal, door: str = "library") -> tuple[Segment, ...]:
        """Remove the files of segments sealed before this time; gives them. Their lines in the list stay."""
        erased: list[Segment] = []
        async with self._lock:
            for segment in await self.list():
                if segment.erased_at is not None or segment.sealed_at >= moment(before):
                    continue
                gone = replace(segment, erased_at=moment(datetime.now(UTC)))
                await self._tell(ERASING, gone, by, door)
                await anyio.to_thread.run_sync(add_to_list, self._folder / LIST, gone)
                await anyio.to_thread.run_sync(lambda file=gone.file: (self._folder / file).unlink(missing_ok=True))
                erased.append(gone)
        return tuple(erased)

    async def check(self) -> Sealed:
        """Read every segment that is not erased."""
        try:
            segments = await self.list()
        except Conflict as error:
            return Sealed(findings=(error.message,))
        kept = [each for each in segments if each.erased_at is None]
        found = [await anyio.to_thread.run_sync(check, self._folder, each) for each in kept]
        return Sealed(
            Head(segments[-1].last, segments[-1].hash) if segments else Head(),
            sum(each.last - each.first + 1 for each in kept),
            tuple(wrong for wrong, _ in found if wrong is not None),
            tuple(each for each in segments if each.erased_at is not None),
            frozenset(first for _, told in found for first in told),
        )

    async def _tell(self, kind: str, segment: Segment, by: Principal, door: str) -> None:
        """The chain's own record of what was done with a segment."""
        await self._record({"phase": "outcome", **change(kind, segment.to_json(), by, door), "isError": False})

    async def _delete(self, base: Head) -> None:
        """Some at a time, so that calls go on meanwhile."""
        if not base.number:
            return
        first = await self._store.read(lambda connection: connection.scalar(select(func.min(audit.c.id))))
        for last in range((first or base.number) + AT_ONCE - 1, base.number + AT_ONCE, AT_ONCE):
            await self._store.write(delete(audit).where(audit.c.id <= min(last, base.number)))

    async def _write(self, base: Head, last: int) -> Segment:
        """Write one segment and check what was written."""
        name = f"{base.number + 1:012d}-{last:012d}.jsonl.gz"
        beside = self._folder / f".{name}.tmp"
        try:
            with await anyio.to_thread.run_sync(private, beside) as raw, gzip.GzipFile("", "wb", 6, raw, 0) as file:
                waiting: list[bytes] = []
                async for line in export(self._store, after=base.number, upto=last):
                    waiting.append(line)
                    if len(waiting) == AT_ONCE:
                        await anyio.to_thread.run_sync(file.writelines, waiting)
                        waiting = []
                await anyio.to_thread.run_sync(file.writelines, waiting)
            end = await anyio.to_thread.run_sync(lambda: follow(lines(beside), base))
            if end.number != last:
                raise Conflict("audit.broken", f"{span(end.number + 1, last)} missing.")
            sum256 = await anyio.to_thread.run_sync(settle, beside, self._folder / name)
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
