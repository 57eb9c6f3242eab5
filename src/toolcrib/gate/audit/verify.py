"""Detects tampering: edited, moved, missing or cut-off records, and columns that no longer match.

Every record is hashed again and must follow its predecessor. The record named by `audit.head`, the last one this crib
has written, and those named by signatures and anchors must exist. A database that cannot be read is unavailable, not
tampered with. Sealed records are read from their files; the database continues where they end. Records may be added
meanwhile. Must never trust a record's own statement of its identity.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import orjson
from sqlalchemy import Connection, exc

from toolcrib.gate.audit.chain import COLUMNS, columns_of, span, stored
from toolcrib.gate.audit.checkpoints import heads_in
from toolcrib.gate.audit.head import ChainHead, HeadContent, base_of, read_head
from toolcrib.gate.audit.segment_files import erasing_of
from toolcrib.gate.audit.segments import Sealed, load_sealings
from toolcrib.model.errors import Unavailable
from toolcrib.model.json import Json, JsonObject, is_object, loads
from toolcrib.store.audit import hashes_of, page
from toolcrib.store.audit_lanes import CHECKPOINT_LANE, lane_begin, lane_end, lane_of, lane_start
from toolcrib.store.engine import Store

_PAGE = 1000
_MOST_FINDINGS = 100

Kind = Literal[
    "edited",
    "moved",
    "unlinked",
    "missing",
    "columns",
    "cut",
    "head",
    "unreadable",
    "segment",
    "signature",
    "anchor",
    "checkpoint",
]
UNSIGNED = (
    "The end of the chain is not signed, since no system keyring is available. Programs that can write to the home can "
    "replace the whole chain. Store anchors elsewhere: `toolcrib audit anchor --to …`."
)


@dataclass(frozen=True, slots=True)
class ChainFinding:
    """One problem, and the record it was found at."""

    kind: Kind
    message: str
    record: int | None = None

    def to_json(self) -> JsonObject:
        """Return the public JSON, without an absent record."""
        shape: JsonObject = {"code": "audit.broken", "kind": self.kind, "message": self.message}
        return shape if self.record is None else {**shape, "record": self.record}


@dataclass(frozen=True, slots=True)
class Verification:
    """The number of checked records, and the first hundred findings."""

    records: int
    findings: tuple[ChainFinding, ...]
    signed: bool = False
    anchors: int = 0
    """The number of checked anchors."""

    @property
    def ok(self) -> bool:
        """Whether the chain is intact."""
        return not self.findings

    def to_json(self) -> JsonObject:
        """Return the public JSON."""
        shape: JsonObject = {
            "ok": self.ok,
            "records": self.records,
            "findings": [finding.to_json() for finding in self.findings],
            "signed": self.signed,
            "anchors": self.anchors,
        }
        return shape if self.signed else {**shape, "note": UNSIGNED}


@dataclass(frozen=True, slots=True)
class Witness:
    """A position in the chain named outside of the database. `says` starts the message of a finding."""

    head: ChainHead
    kind: Kind
    says: str


async def verify(
    store: Store, head_file: Path, durable: ChainHead, sealed: Sealed, witnesses: Sequence[Witness] = ()
) -> Verification:
    """Verify the chain in `store`. `durable` is the last record this process has written or found.

    Raises `Unavailable` if the database cannot be read.
    """
    content = read_head(head_file)
    check = _Check([head for head in (durable, content.head if content else None) if head], sealed.base)
    check.watch(witnesses)
    for finding in sealed.findings:
        check.found("segment", finding)
    await _read(store, check)
    if lane_of(sealed.base.number):
        await _judge_base(store, check, sealed.base)
    for segment in sealed.erased:
        if segment.first not in check.erasings | sealed.erasures:
            check.found("segment", f"{segment.file} is listed as erased, but no record confirms it.")
    _judge_head(check, content, head_file.name)
    return Verification(sealed.records + check.records, tuple(check.findings))


async def _read(store: Store, check: "_Check") -> None:
    """Verify all records of a lane that are in the database."""
    try:
        while await store.read(check.next_page):
            pass
    except Unavailable as error:
        if not _is_of_a_row(error):
            raise
        check.found("unreadable", f"The records after {check.last.number} cannot be read. {error.message}")
    check.end()


async def verify_lanes(
    store: Store, own: int, others: Sequence[int], newest: ChainHead | None, witnesses: Sequence[Witness] = ()
) -> Verification:
    """Verify the lanes of other nodes, the checkpoints, and every lane against them.

    `newest` is the newest checkpoint that this node has seen. Records that other nodes sealed are in their homes; a
    record in any lane must confirm it.
    """
    records, findings = 0, list[ChainFinding]()
    for lane in (*others, CHECKPOINT_LANE):
        base = await store.read(lambda connection, lane=lane: base_of(connection, lane))
        expected = [newest] if lane == CHECKPOINT_LANE and newest is not None else []
        check = _Check(expected, base)
        check.watch([each for each in witnesses if lane_of(each.head.number) == lane])
        await _read(store, check)
        await _judge_base(store, check, base)
        records += check.records
        findings += check.findings
    findings += await _judge_checkpoints(store)
    return Verification(records, tuple(findings[:_MOST_FINDINGS]))


async def _judge_base(store: Store, check: "_Check", base: ChainHead) -> None:
    """Report records missing at the beginning of a lane, unless a record in any lane confirms that they are sealed."""
    start = lane_start(lane_of(base.number))
    if base.number > start and base not in await store.read(load_sealings):
        check.found("missing", f"{span(start + 1, base.number)} missing.", base.number + 1)


async def _judge_checkpoints(store: Store) -> list[ChainFinding]:
    """Compare every record that a checkpoint names with the one in its lane. Sealed ones are not in the database."""
    findings: list[ChainFinding] = []
    after = lane_start(CHECKPOINT_LANE)
    while len(findings) < _MOST_FINDINGS:
        rows = await store.read(lambda connection, after=after: page(connection, after, _PAGE))
        named = {head: row[0] for row in rows for head in heads_in(_parse_body(row[-1]))}
        found = await store.read(lambda connection, named=named: _compare_heads(connection, named))
        findings += [
            ChainFinding("checkpoint", f"Checkpoint {named[head]} names record {head.number}, which is {how}.", number)
            for head, how in found
            for number in [head.number]
        ]
        if len(rows) < _PAGE:
            break
        after = rows[-1][0]
    return findings


def _compare_heads(connection: Connection, named: Mapping[ChainHead, int]) -> list[tuple[ChainHead, str]]:
    wrong: list[tuple[ChainHead, str]] = []
    there = hashes_of(connection, [head.number for head in named])
    oldest = {lane: lane_begin(connection, lane) for lane in {lane_of(head.number) for head in named}}
    for head in named:
        begin = oldest[lane_of(head.number)]
        if head.number in there:
            if there[head.number] != head.hash:
                wrong.append((head, "different from the one in its lane"))
        elif begin is None or head.number >= begin[0]:
            wrong.append((head, "gone"))
    return wrong


def _judge_head(check: "_Check", content: HeadContent | None, name: str) -> None:
    if content is None:
        if check.records:
            check.found("head", f"{name} is missing, so records removed from the end cannot be detected.")
        return
    if content.head is None:
        check.found("head", f"{name} is invalid.")
    for note in content.notes:
        check.found("head", note)


class _Check:
    """The state of the verification so far."""

    def __init__(self, expected: Sequence[ChainHead], base: ChainHead) -> None:
        self.last = base
        self.records = 0
        self.findings: list[ChainFinding] = []
        self.erasings: set[int] = set()
        self._base = base
        self._expected = {head for head in expected if self._is_here(head)}
        self._witnesses: dict[ChainHead, list[Witness]] = {}

    def watch(self, witnesses: Sequence[Witness]) -> None:
        """Expect the records that these witnesses name. Sealed records are compared elsewhere."""
        for each in witnesses:
            if self._is_here(each.head):
                self._witnesses.setdefault(each.head, []).append(each)

    def _is_here(self, head: ChainHead) -> bool:
        """Return whether a record must be in the database: it is in this lane, and not sealed."""
        lane = lane_of(self._base.number)
        is_in_lane = max(self._base.number, lane_start(lane) + 1) <= head.number < lane_end(lane)
        return is_in_lane and head != self._base

    def found(self, kind: Kind, message: str, record: int | None = None) -> None:
        """Add a finding, up to the limit."""
        if len(self.findings) < _MOST_FINDINGS:
            self.findings.append(ChainFinding(kind, message, record))

    def next_page(self, connection: Connection) -> bool:
        """Read and verify more records. Returns False at the end."""
        rows = page(connection, self.last.number, _PAGE)
        for number, digest, *columns, body in rows:
            self._record(number, digest, columns, body)
        return len(rows) == _PAGE

    def _record(self, number: int, digest: Any, columns: Sequence[Any], body: Any) -> None:
        raw = body if isinstance(body, bytes) else b""
        record = _parse_body(raw)
        gap = number != self.last.number + 1
        if gap:
            self.found("missing", f"{span(self.last.number + 1, number - 1)} missing.", number)
        prev = record.get("prev")
        if not isinstance(prev, str) or sha256(prev.encode() + raw).hexdigest() != digest:
            self.found("edited", f"Record {number} was edited: its content does not match its hash.", number)
        elif record.get("id") != number:
            self.found("moved", f"Record {number} was moved: it was written as {record.get('id')}.", number)
        elif prev != self.last.hash and not gap:
            self.found("unlinked", f"Record {number} does not follow {number - 1}: one of them was replaced.", number)
        self._compare(number, record, columns)
        if (first := erasing_of(record)) is not None:
            self.erasings.add(first)
        self.records += 1
        self.last = ChainHead(number, digest)
        self._expected.discard(self.last)
        self._witnesses.pop(self.last, None)

    def _compare(self, number: int, record: JsonObject, columns: Sequence[Any]) -> None:
        pairs = zip(COLUMNS, columns, stored(columns_of(record)), strict=True)
        changed = [name for name, column, written in pairs if column != written]
        if changed and record:
            self.found("columns", f"Columns of record {number} differ from its content: {', '.join(changed)}.", number)

    def end(self) -> None:
        """Report expected records that were not found."""
        for head in sorted(self._expected):
            if head.number > self.last.number:
                lost = span(self.last.number + 1, head.number)
                self.found("cut", f"{lost} missing at the end of the chain.", head.number)
            else:
                self.found("head", f"Record {head.number} differs from the one that was written.", head.number)
        for head, witnesses in sorted(self._witnesses.items()):
            is_gone = head.number > self.last.number
            how = "gone" if is_gone else "different from the one in the chain"
            for each in witnesses:
                self.found(each.kind, f"{each.says} record {head.number}, which is {how}.", head.number)


def _is_of_a_row(error: Unavailable) -> bool:
    """Return whether one row is not valid text: SQLite's own errors have a code, decoding errors have none."""
    cause = error.__cause__
    cause = cause.orig if isinstance(cause, exc.DBAPIError) else cause
    return isinstance(cause, sqlite3.OperationalError) and not hasattr(cause, "sqlite_errorcode")


def _parse_body(body: bytes) -> JsonObject:
    try:
        record: Json = loads(body)
    except orjson.JSONDecodeError:
        return {}
    return record if is_object(record) else {}
