"""Retention: moves old records from the database into sealed segments, and records every erasure.

A segment is a compressed file of lines as `export` writes them. `segments.jsonl` beside the files lists each with its
range, the hashes before and at its end, and the SHA-256 of the file. The chain itself records every sealing and
erasure, so a segment can neither disappear unnoticed nor wrongly pass for erased. A process may be killed at any step:
the file is complete before the chain records it, the chain records it before the list does, and records are deleted
last.

Records in the database start where the last segment ends (`base`). The newest ones always stay. Must never delete a
record that is not in a complete, verified and listed file.

On a shared database every node seals its own lane. One node at a time also seals the checkpoints and the lanes of nodes
that are gone. Segments of a lane may therefore be in several homes: the database shows where its lane begins, and the
record of a sealing, in any lane, confirms it. Sealing keeps such a record in the database.
"""

import gzip
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence, Set
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.to_thread
import orjson
from sqlalchemy import Connection, delete, func, select

from toolcrib.gate.audit.chain import span
from toolcrib.gate.audit.change_body import SERVER, change
from toolcrib.gate.audit.checkpoints import ALL_LANES
from toolcrib.gate.audit.export import export, follow
from toolcrib.gate.audit.head import ChainHead, base_of, beginning
from toolcrib.gate.audit.segment_files import (
    AT_ONCE,
    ERASING,
    SEALING,
    Segment,
    add_to_list,
    check,
    lines,
    number_of,
    private,
    read_list,
    sealed_lines,
    sealing_of,
    settle,
)
from toolcrib.model.errors import Conflict
from toolcrib.model.json import JsonObject, as_object, loads
from toolcrib.model.principals import Principal
from toolcrib.store.audit import moment
from toolcrib.store.audit_lanes import CHECKPOINT_LANE, lane_end, lane_of, lane_start, load_lanes
from toolcrib.store.engine import Store
from toolcrib.store.schema import audit

LIST = "segments.jsonl"
MOST_RECORDS = 100_000
"""Maximum records of one segment."""
KEPT = 100
"""Records that stay in the database regardless of age, to find and resume the end of the chain."""
FIRST_LOOK = 60.0
"""Seconds after start until the first run, so that short-lived commands skip it."""
LOOK_EVERY = 24 * 3600.0

_BEGINNING = ChainHead()

logger = logging.getLogger(__name__)

Record: TypeAlias = Callable[[JsonObject], Awaitable[int]]
"""Adds a record to the chain. Completes when it is durable."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """The result of checking the segments: where the database continues, the number of records, and findings.

    `erased` are the segments listed as erased. `erasures` has the first record of each segment whose erasure a record
    in a segment describes.
    """

    base: ChainHead = _BEGINNING
    records: int = 0
    findings: tuple[str, ...] = ()
    erased: tuple[Segment, ...] = ()
    erasures: frozenset[int] = frozenset()


class Segments:
    """The sealed segments of one chain, in their own folder."""

    def __init__(self, store: Store, record: Record, folder: Path) -> None:
        self.lane = 0
        """The lane that this crib writes."""
        self.left_lanes: Callable[[], Awaitable[Sequence[int]]] = _no_lanes
        """Returns the lanes that no running node writes, if it is this node's turn to seal them."""
        self._store = store
        self._record = record
        self._folder = folder
        self._lock = anyio.Lock()

    async def list(self) -> tuple[Segment, ...]:
        """Return all segments in order, including erased ones. Raises `Conflict` (`audit.broken`) if there are gaps."""
        is_whole = not self.lane
        return await anyio.to_thread.run_sync(lambda: read_list(self._folder / LIST, is_whole=is_whole))

    async def base(self, lane: int | None = None) -> ChainHead:
        """Return the record after which the database continues, in this crib's lane or another one."""
        segments = await self.list()
        if self.lane:
            return await self._store.read(lambda connection: base_of(connection, self.lane if lane is None else lane))
        return ChainHead(segments[-1].last, segments[-1].hash) if segments else beginning(self.lane)

    def steady(self) -> AbstractAsyncContextManager[None]:
        """Return a lock. Nothing is sealed or erased while it is held."""
        return self._lock

    async def follow(self, days: int, *, by: Principal) -> None:
        """Seal records older than `days` once a day, until cancelled."""
        await anyio.sleep(FIRST_LOOK)
        while True:
            try:
                for segment in await self.seal(datetime.now(UTC) - timedelta(days=days), by=by, door="library"):
                    logger.info("Sealed records %d to %d in %s.", segment.first, segment.last, segment.file)
            except Exception:  # boundary: unsealed records stay in the database, and the next run may succeed
                logger.exception("Could not seal old records.")
            await anyio.sleep(LOOK_EVERY)

    async def export(self, after: int = 0, upto: int | None = None, lane: int | None = None) -> AsyncIterator[bytes]:
        """Yield the lines of the whole lane in order, from segments and database, without erased ones.

        Records may be sealed meanwhile, so records missing from the database are looked up in the segments again.
        """
        lane = self.lane if lane is None else lane
        after = max(after, lane_start(lane))
        upto = min(upto if upto is not None else lane_end(lane) - 1, lane_end(lane) - 1)
        while after < upto:
            page = [line async for line in export(self._store, after=after, upto=upto, most=AT_ONCE)]
            segments = [each for each in await self.list() if after < each.last and each.first <= upto]
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
        """Move records from before this time into segments, except the newest, and return the new segments.

        Raises `Conflict` (`audit.broken`) at damaged records, which stay in the database.
        """
        sealed: list[Segment] = []
        await self._store.caught_up()
        lanes = await self.left_lanes()
        async with self._lock:
            await anyio.to_thread.run_sync(lambda: self._folder.mkdir(mode=0o700, exist_ok=True))
            confirmed = await self._store.read(load_sealings)
            for lane in (*lanes, self.lane):
                await self._seal(lane, sealed, before, keep, by, door)
            if self.lane and sealed:
                await self._confirm({*confirmed, *(ChainHead(each.last, each.hash) for each in sealed)}, by, door)
        return tuple(sealed)

    async def _seal(
        self, lane: int, sealed: "list[Segment]", before: datetime, keep: int, by: Principal, door: str
    ) -> None:
        """Seal one lane, and add its new segments to `sealed`."""
        base = await self.base(lane)
        await self._delete(base)  # left over by a killed process
        last = await self._store.read(lambda connection: _last_before(connection, lane, before, keep))
        while base.number < last:
            segment = await self._write(base, min(last, base.number + MOST_RECORDS))
            await self._record_change(SEALING, segment, by, door)
            await anyio.to_thread.run_sync(add_to_list, self._folder / LIST, segment)
            base = ChainHead(segment.last, segment.hash)
            await self._delete(base)
            sealed.append(segment)

    async def _confirm(self, known: Set[ChainHead], by: Principal, door: str) -> None:
        """Record again where lanes begin if the record of that was sealed itself."""
        lanes = [0, CHECKPOINT_LANE, *await load_lanes(self._store)]
        bases = await self._store.read(lambda connection: {base_of(connection, lane) for lane in lanes})
        unconfirmed = (bases & known) - await self._store.read(load_sealings)
        for base in sorted(unconfirmed):
            detail: JsonObject = {"first": base.number, "last": base.number, "hash": base.hash}
            await self._record({"phase": "outcome", **change(SEALING, detail, by, door), "isError": False})

    async def erase(self, before: datetime, *, by: Principal, door: str = "library") -> tuple[Segment, ...]:
        """Remove the files of segments sealed before this time, and return them. Their lines in the list stay."""
        erased: list[Segment] = []
        async with self._lock:
            for segment in await self.list():
                if segment.erased_at is not None or segment.sealed_at >= moment(before):
                    continue
                gone = replace(segment, erased_at=moment(datetime.now(UTC)))
                await self._record_change(ERASING, gone, by, door)
                await anyio.to_thread.run_sync(add_to_list, self._folder / LIST, gone)
                await anyio.to_thread.run_sync(lambda file=gone.file: (self._folder / file).unlink(missing_ok=True))
                erased.append(gone)
        return tuple(erased)

    async def hashes(self, numbers: Collection[int]) -> dict[int, str]:
        """Return the hashes of these records from segments. Those in erased segments are missing."""
        found: dict[int, str] = {}
        for segment in await self.list():
            wanted = {number for number in numbers if segment.first <= number <= segment.last}
            if not wanted or segment.erased_at is not None:
                continue
            async for line in sealed_lines(self._folder / segment.file, min(wanted) - 1, max(wanted)):
                if number_of(line) in wanted:
                    found[number_of(line)] = str(orjson.loads(line).get("hash"))
        return found

    async def check(self) -> Sealed:
        """Verify every segment that is not erased."""
        try:
            segments = await self.list()
        except Conflict as error:
            return Sealed(beginning(self.lane), findings=(error.message,))
        kept = [each for each in segments if each.erased_at is None]
        base = await self.base()
        found = [await anyio.to_thread.run_sync(check, self._folder, each) for each in kept]
        return Sealed(
            base,
            sum(each.last - each.first + 1 for each in kept),
            tuple(wrong for wrong, _ in found if wrong is not None),
            tuple(each for each in segments if each.erased_at is not None),
            frozenset(first for _, erasures in found for first in erasures),
        )

    async def _record_change(self, kind: str, segment: Segment, by: Principal, door: str) -> None:
        """Record in the chain what was done with a segment."""
        await self._record({"phase": "outcome", **change(kind, segment.to_json(), by, door), "isError": False})

    async def _delete(self, base: ChainHead) -> None:
        """Delete the records up to `base` in batches, so that calls are not blocked."""
        start = lane_start(lane_of(base.number))
        if base.number == start:
            return
        oldest = select(func.min(audit.c.id)).where(audit.c.id > start, audit.c.id <= base.number)
        first = await self._store.read(lambda connection: connection.scalar(oldest))
        for last in range((first or base.number) + AT_ONCE - 1, base.number + AT_ONCE, AT_ONCE):
            await self._store.write(delete(audit).where(audit.c.id > start, audit.c.id <= min(last, base.number)))

    async def _write(self, base: ChainHead, last: int) -> Segment:
        """Write one segment and verify the written file."""
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


def _last_before(connection: Connection, lane: int, before: datetime, keep: int) -> int:
    """Return the last record of a lane to move: all records up to it are older, and `keep` come after it."""
    here = (audit.c.id > lane_start(lane), audit.c.id < lane_end(lane))
    first_kept = connection.scalar(select(func.min(audit.c.id)).where(*here, audit.c.at >= moment(before)))
    newest = connection.scalar(select(func.max(audit.c.id)).where(*here)) or lane_start(lane)
    last = min(first_kept - 1 if first_kept is not None else newest, newest - max(keep, 1))
    if lane == CHECKPOINT_LANE:  # the newest one that names every lane stays, so that a cut end of any is found
        whole = connection.scalar(select(func.max(audit.c.id)).where(*here, audit.c.tool == ALL_LANES))
        last = min(last, (whole or lane_start(lane)) - 1)
    return last


def load_sealings(connection: Connection) -> set[ChainHead]:
    """Return the ends of all segments whose sealing is recorded in the database."""
    query = select(audit.c.body).where(audit.c.tool == SEALING, audit.c.server == SERVER)
    bodies = connection.execute(query).scalars().all()
    return {head for body in bodies if (head := sealing_of(as_object(loads(bytes(body))) or {})) is not None}


async def _no_lanes() -> Sequence[int]:
    """Return no lanes: this crib has the database for itself."""
    return ()
