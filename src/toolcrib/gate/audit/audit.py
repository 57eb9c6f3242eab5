"""The audit log of a crib: opens its chain, queries, verifies and exports the records.

`call_records` writes those of calls. A run is the time from opening to closing: the next one records the outcomes that
a killed run left open.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, Self

import anyio
import anyio.to_thread
import orjson

from toolcrib.base.masking.values import Redactor
from toolcrib.gate.audit.anchors import Anchor
from toolcrib.gate.audit.call_records import CallRecords
from toolcrib.gate.audit.chain import Chain, Left, columns_of, current_moment, stored, unbroken
from toolcrib.gate.audit.chain_signature import ChainSignature
from toolcrib.gate.audit.checkpoints import Checkpoints
from toolcrib.gate.audit.head import ChainHead, HeadContent, HeadFile, beginning, read_head
from toolcrib.gate.audit.segments import Segments
from toolcrib.gate.audit.signing import HeadKey
from toolcrib.gate.audit.unfinished import OwedOutcomes, unfinished
from toolcrib.gate.audit.verify import ChainFinding, Verification, Witness, verify, verify_lanes
from toolcrib.model.errors import Conflict, NotFound, Unavailable
from toolcrib.model.json import JsonObject, encoded_members, loads
from toolcrib.model.observing import CallObserver
from toolcrib.model.tools import ToolRef
from toolcrib.store.audit import (
    CHECKPOINT,
    AuditRun,
    Filters,
    calls_since,
    count,
    end_run,
    find,
    get,
    hashes,
    load_run,
    rename_run,
    save_run,
    tally,
)
from toolcrib.store.audit_lanes import CHECKPOINT_LANE, lane_end, lane_heads, lane_of, lane_start, load_lanes, own_lane
from toolcrib.store.batch import Fence
from toolcrib.store.engine import Store

logger = logging.getLogger(__name__)

_NO_JOURNAL = "The journal of the killed run was removed or replaced: durable records after {} may be missing."
Phase = Literal["intent", "outcome"]
_MOST_FORMS = 4096


class Audit:
    """One chain of records, and the others of a shared database: `async with Audit(store, head_file) as audit`."""

    def __init__(
        self,
        store: Store,
        head_file: Path,
        redactor: Redactor | None = None,
        *,
        crib: str = "",
        observer: CallObserver | None = None,
    ) -> None:
        """Sealed segments are in the folder `audit` beside the head file. `redactor` masks secrets in arguments.

        `crib` distinguishes cribs on one database. `observer` is notified of the end of every call.
        """
        self.redactor = redactor or Redactor()
        self._run_start = 0
        self.owed = OwedOutcomes(store, lambda: AuditRun(self.run, None, self._run_start), self.record)
        self.call_records = CallRecords(store, self.redactor, observer, self.owed)
        self.run = secrets.token_hex(6)
        """The prefix of the call ids of this run."""
        self.lane = 0
        """The lane that this crib writes; each node of a shared database has its own."""
        self._crib = crib
        self._waiting_journal: str | None = None
        self._store = store
        self._path = head_file
        self.segments = Segments(store, self.record, head_file.with_name("audit"))
        self.seal = ChainSignature(head_file.with_name("audit.signature"))
        self.checkpoints = Checkpoints(store, head_file.with_name("audit.checkpoint"), crib)
        self._file: HeadFile
        self._chain: Chain

    async def __aenter__(self) -> Self:
        if self._store.shared and self._crib:
            self.lane = self.segments.lane = await own_lane(self._store, self._crib)
        self._file = HeadFile(self._path)
        try:
            known = read_head(self._path)
            if known is not None and known.head is not None and lane_of(known.head.number) != self.lane:
                known = await self._left_lane(known.head, known)
            self._chain = self.call_records.chain = await self._resume_chain(known)
        except BaseException:
            self._file.close()
            raise
        return self

    async def _left_lane(self, head: ChainHead, known: HeadContent) -> HeadContent | None:
        """Check the last record that this crib wrote before it had its lane, and return what is left to check."""
        if await self._hash_of(head.number) != head.hash:
            self._file.note(f"Record {head.number}, the last one that this crib wrote before, is missing or differs.")
        return HeadContent(beginning(self.lane), known.notes)

    async def _resume_chain(self, known: HeadContent | None) -> Chain:
        """Return the chain from the database and its journal, after comparing it with the head file."""
        head = known.head if known is not None else None
        chain = Chain(self._file, head or beginning(self.lane))
        killed = await load_run(self._store, self._crib)
        rows = await self._store.read(lambda connection: connection.execute(chain.tail()).all())
        newest = ChainHead(*rows[-1]) if rows else chain.beginning
        left = await self._left_in_journal(chain.head)
        goes_on = bool(left) and left[0].prev == newest
        chain.resume([*rows, *(record.head for record in left)] if goes_on else rows)
        chain.head = newest
        for record in left:
            await self._store.append(chain, record.entry)
        chain.committed()
        await self._begin_run(chain, killed)
        joins = known is None and self._store.shared  # a new crib joins a database in use
        if rows and head is None and not joins:
            state = "missing" if known is None else "unreadable"
            self._file.note(
                f"This file was {state} at record {chain.head.number}: earlier removals at the end are undetectable."
            )
        return chain

    async def _begin_run(self, chain: Chain, killed: AuditRun | None) -> None:
        """Record the outcomes that a killed run left open, then store the start of this run."""
        # The name is reused until a run ends cleanly, so that there is never a choice of two names.
        journal = killed.journal if killed is not None and killed.journal is not None else secrets.token_hex(16)
        if killed is not None:
            if killed.journal is not None and self._store.has_journal and self._store.journal_found() != journal:
                self._file.note(_NO_JOURNAL.format(chain.head.number))
            last = await self._newest(lane_of(killed.start), chain)
            for body in await unfinished(self._store, killed, last):
                await self._append(chain, body)
        try:
            used = self._store.journal(chain, journal)
            # A run that cannot read journals keeps that of a killed run for one that can.
            waits = killed is not None and killed.journal is not None and not self._store.has_journal
            self._waiting_journal = journal if waits else None
            self._run_start = chain.head.number
            run = AuditRun(self.run, journal if used or waits else None, self._run_start)
            await save_run(self._store, self._crib, run)
            self.call_records.fence = Fence(self._crib, self.run) if self._store.shared else None
        except Unavailable as error:  # calls that cannot be recorded raise their own error
            self._store.journal(None)
            logger.warning("The audit runs without its journal: %s", error)

    async def renew_run(self) -> None:
        """Begin another run if other cribs ended the current one, since this crib lost the database for too long."""
        current = await load_run(self._store, self._crib)
        if current is None or current.run != self.run:
            self.run, self._run_start = secrets.token_hex(6), self._chain.head.number
            await save_run(self._store, self._crib, AuditRun(self.run, None, self._run_start))
            self.call_records.fence = Fence(self._crib, self.run)

    async def settle_run(self, crib: str) -> int:
        """End the run of a crib that is dead, and record the outcomes that it left open; return their number.

        The crib cannot write any more records of that run, even if it was only suspended.
        """
        ended = f"{crib} (ended)"
        settled = await self._settle(ended)  # left by a crib that died while it settled
        await rename_run(self._store, crib, ended)
        return settled + await self._settle(ended)

    async def _settle(self, ended: str) -> int:
        run = await load_run(self._store, ended)
        if run is None:
            return 0
        bodies = await unfinished(self._store, run, await self._newest(lane_of(run.start), self._chain))
        for body in bodies:
            await self._append(self._chain, body)
        await end_run(self._store, ended)
        return len(bodies)

    async def _newest(self, lane: int, chain: Chain) -> int:
        """Return the newest record of a lane: the one that a killed run wrote to, maybe before it had its own."""
        if lane == self.lane:
            return chain.head.number
        heads = await self._store.read(lambda connection: lane_heads(connection, [lane]))
        return heads[0][0] if heads else lane_start(lane)

    async def _end_run(self) -> None:
        self.call_records.fence = None
        try:
            if self._waiting_journal is not None:
                run = AuditRun(self.run, self._waiting_journal, self._chain.head.number)
                await save_run(self._store, self._crib, run)
            elif self._store.journal(None) or not self._store.has_journal:
                await end_run(self._store, self._crib)
                self._store.forget_journal()
        except Unavailable as error:
            logger.warning("Could not record the end of this run: %s", error)

    async def _left_in_journal(self, known: ChainHead) -> list[Left]:
        """Return the records that were durable but not yet in the database when an earlier process ended.

        They follow a record of the database, or the last one known to the head file.
        """
        base = await self._base()
        found = [record for record in unbroken(self._store.journal_lines()) if record.head.number > base.number]
        if not found:
            return []
        first, last = found[0].prev, found[-1].head
        there = await self._store.read(lambda connection: hashes(connection, first.number, last.number))
        if first.number and there.get(first.number) != first.hash and first not in (known, base):
            logger.error("Ignored the journal of another database: it begins at %d.", first.number)
            return []
        return [record for record in found if there.get(record.head.number) != record.head.hash]

    async def _base(self) -> ChainHead:
        """Return the last sealed record. Journal entries up to it are old."""
        try:
            return await self.segments.base()
        except Conflict as error:
            logger.error("Could not use the list of sealed records: %s", error)  # noqa: TRY400 verify reports more
            return beginning(self.lane)

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.owed.aclose()
            await self._end_run()
        self._file.close()

    @property
    def records(self) -> int:
        """Number of records that this crib's chain ever had."""
        return self._chain.head.number - lane_start(self.lane)

    def record(self, body: JsonObject) -> "asyncio.Future[int]":
        """Record any JSON with at least `phase`. The future resolves to its number once it is durable."""
        return self._append(self._chain, body)

    def _append(self, chain: Chain, body: JsonObject) -> "asyncio.Future[int]":
        members, body = encoded_members({"at": current_moment(), **body})
        return self._store.append(chain, (members, stored(columns_of(body))), self.call_records.fence)

    async def find(self, filters: Filters) -> list[JsonObject]:
        """Return the matching records, newest first."""
        lanes = await self._listed_lanes(filters)
        rows = await self._store.read(lambda connection: find(connection, filters, lanes))
        return [_public(*row) for row in rows]

    async def _listed_lanes(self, filters: Filters) -> list[int]:
        """Return the lanes to search; empty if there is only one."""
        if not self.lane:
            return []
        return [CHECKPOINT_LANE] if filters.phase == CHECKPOINT else [0, *await load_lanes(self._store)]

    async def count(self, filters: Filters) -> int:
        """Return the number of matching records."""
        lanes = await self._listed_lanes(filters)
        return await self._store.read(lambda connection: count(connection, filters, lanes))

    async def tally(self, filters: Filters) -> tuple[list[tuple[tuple[str | None, ...], int]], int]:
        """Return the number of matching outcomes by their `COUNTED` columns, and how many of all these calls failed."""
        lanes = await self._listed_lanes(filters)
        return await self._store.read(lambda connection: tally(connection, filters, lanes))

    async def calls(self, days: int, *, agent: str | None = None, principal: str | None = None) -> dict[ToolRef, int]:
        """Return the number of calls by tool in the last days, of all callers or of one agent or principal."""
        since = datetime.now(UTC) - timedelta(days=days)
        rows = await self._store.read(
            lambda connection: calls_since(connection, since, agent=agent, principal=principal)
        )
        return {ToolRef(str(server), str(tool)): int(number) for server, tool, number in rows if server and tool}

    async def get(self, number: int) -> JsonObject:
        """Return one record. Raises `NotFound` (`audit.unknown`)."""
        row = await self._store.read(lambda connection: get(connection, number))
        if row is not None:
            return _public(*row)
        raise NotFound("audit.unknown", f"Audit record {number} not found.")

    async def verify(self, anchors: Sequence[Anchor] = ()) -> Verification:
        """Verify every record, including sealed ones, every link, both ends, the signature and these anchors.

        Raises `Unavailable` if the database cannot be read, or if pending records cannot be written to it now.
        """
        await self._store.caught_up()
        signed, found = await self.seal.witnesses()
        async with self.segments.steady():
            sealed = await self.segments.check()
            outside = [*signed, *map(_witness, anchors)]
            found += await self._in_segments(outside, sealed.base)
            checked = await verify(self._store, self._path, self._chain.durable, sealed, outside)
            if self.lane:
                checked = await self._with_other_lanes(checked, outside)
        found += self.seal.wrongly_signed(anchors)
        return replace(
            checked, findings=(*checked.findings, *found), signed=self.seal.key is not None, anchors=len(anchors)
        )

    async def _with_other_lanes(self, checked: Verification, witnesses: Sequence[Witness]) -> Verification:
        """Add the verification of all other lanes and of the checkpoints over them."""
        others = [lane for lane in (0, *await load_lanes(self._store)) if lane != self.lane]
        more = await verify_lanes(self._store, self.lane, others, self.checkpoints.newest, witnesses)
        return replace(checked, records=checked.records + more.records, findings=(*checked.findings, *more.findings))

    async def export(self, after: int = 0, upto: int | None = None) -> AsyncIterator[bytes]:
        """Yield the lines of all lanes in order of their numbers, sealed ones of this crib included."""
        lanes = [0, CHECKPOINT_LANE, *await load_lanes(self._store)] if self.lane else [0]
        for lane in lanes:
            if after < lane_end(lane):
                async for line in self.segments.export(after, upto, lane):
                    yield line

    async def _in_segments(self, witnesses: Sequence[Witness], base: ChainHead) -> list[ChainFinding]:
        """Compare witnesses with sealed records. Erased ones cannot be compared."""
        start = lane_start(self.lane)
        older = [each for each in witnesses if start < each.head.number <= base.number and each.head != base]
        try:
            hashes = await self.segments.hashes({each.head.number for each in older})
        except Conflict:  # the check of the segments reports the details
            return []
        return [
            ChainFinding(each.kind, f"{each.says} record {each.head.number}, which differs from the one in the chain.")
            for each in older
            if hashes.get(each.head.number, each.head.hash) != each.head.hash
        ]

    async def anchor(self, crib: str) -> Anchor:
        """Return the current end of the chain, signed if there is a key."""
        await self._store.caught_up()
        await self.seal.looked_for.wait()
        head = self._chain.durable
        return Anchor.now(crib, head, self.records, self.seal.key)

    async def sign_with(self, key: HeadKey | None) -> None:
        """Sign every head from now on, after checking what was signed before. `key` is None if there is none."""
        try:
            if key is not None:
                for sentence in await self.seal.left_wrong(key, self._chain.durable, self._hash_of):
                    self._file.note(sentence)
                self._file.sign_with(self.seal.opened(key), self._chain.durable)
                await anyio.to_thread.run_sync(key.mark_used)
        finally:
            self.seal.looked_for.set()

    async def remember_head(self) -> None:
        """Store the newest record in the keyring, if there is a key."""
        if self.seal.key is not None:
            await anyio.to_thread.run_sync(self.seal.key.remember, self._chain.durable)

    async def _hash_of(self, number: int) -> str | None:
        """Return the hash of a record, from the database or a segment, or None."""
        there = await self._store.read(lambda connection: hashes(connection, number, number))
        return there.get(number) or (await self.segments.hashes({number})).get(number)


def _witness(anchor: Anchor) -> Witness:
    return Witness(anchor.head, "anchor", f"The anchor of {anchor.at} names")


def _public(number: int, digest: str, body: bytes) -> JsonObject:
    """Return the public JSON of a record. A damaged one has only its number and hash."""
    try:
        return {**loads(body), "hash": digest}
    except (orjson.JSONDecodeError, TypeError):
        return {"id": number, "hash": digest, "damaged": True}
