"""Finds what was tampered with: edited, moved, missing or cut-off records, and columns that no longer fit.

Every record is hashed again and must follow the one before it; the record that `audit.head` names, and the last one
this crib has written, must be there. Records that were sealed are read in their files; the database goes on where they
end. Records may be added meanwhile. It must never take a record's own word for what
it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import orjson
from sqlalchemy import Connection

from toolcrib.audit.chain import COLUMNS, columns_of, span, stored
from toolcrib.audit.head import Head, HeadContent, read_head
from toolcrib.audit.segment_files import erasing_of
from toolcrib.audit.segments import Sealed
from toolcrib.errors import Unavailable
from toolcrib.model.json import Json, JsonObject, is_object
from toolcrib.store.audit import page
from toolcrib.store.engine import Store

_PAGE = 1000
_MOST_FINDINGS = 100

Kind = Literal["edited", "moved", "unlinked", "missing", "columns", "cut", "head", "unreadable", "segment"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, and the record it was found at."""

    kind: Kind
    message: str
    record: int | None = None

    def to_json(self) -> JsonObject:
        """The public shape; an absent record is left out."""
        shape: JsonObject = {"code": "audit.broken", "kind": self.kind, "message": self.message}
        return shape if self.record is None else {**shape, "record": self.record}


@dataclass(frozen=True, slots=True)
class Verification:
    """How many records were checked, and what was found: the first hundred things."""

    records: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether the chain is whole."""
        return not self.findings

    def to_json(self) -> JsonObject:
        """The public shape."""
        return {"ok": self.ok, "records": self.records, "findings": [finding.to_json() for finding in self.findings]}


async def verify(store: Store, head_file: Path, durable: Head, sealed: Sealed) -> Verification:
    """Check the chain in `store`; `durable` is the last record this process has written or found."""
    content = read_head(head_file)
    check = _Check([head for head in (durable, content.head if content else None) if head], sealed.base)
    for finding in sealed.findings:
        check.found("segment", finding)
    try:
        while await store.read(check.next_page):
            pass
    except Unavailable as error:
        check.found("unreadable", f"The records after {check.last.number} cannot be read. {error.message}")
    check.end()
    for segment in sealed.erased:
        if segment.first not in check.erasings | sealed.told:
            check.found("segment", f"{segment.file} is said to be erased, but no record tells of it.")
    _judge_head(check, content, head_file.name)
    return Verification(sealed.records + check.records, tuple(check.findings))


def _judge_head(check: "_Check", content: HeadContent | None, name: str) -> None:
    if content is None:
        if check.records:
            check.found("head", f"{name} is missing, so a cut tail cannot be found.")
        return
    if content.head is None:
        check.found("head", f"{name} cannot be understood.")
    for note in content.notes:
        check.found("head", note)


class _Check:
    """The chain as far as it was read."""

    def __init__(self, expected: Sequence[Head], base: Head) -> None:
        self.last = base
        self.records = 0
        self.findings: list[Finding] = []
        self.erasings: set[int] = set()
        self._expected = {head for head in expected if head.number >= max(base.number, 1) and head != base}

    def found(self, kind: Kind, message: str, record: int | None = None) -> None:
        """Keep a finding, unless there are too many already."""
        if len(self.findings) < _MOST_FINDINGS:
            self.findings.append(Finding(kind, message, record))

    def next_page(self, connection: Connection) -> bool:
        """Read and check some more records; false at the end."""
        rows = page(connection, self.last.number, _PAGE)
        for number, digest, *columns, body in rows:
            self._record(number, digest, columns, body)
        return len(rows) == _PAGE

    def _record(self, number: int, digest: Any, columns: Sequence[Any], body: Any) -> None:
        raw = body if isinstance(body, bytes) else b""
        record = _parsed(raw)
        gap = number != self.last.number + 1
        if gap:
            self.found("missing", f"{span(self.last.number + 1, number - 1)} missing.", number)
        prev = record.get("prev")
        if not isinstance(prev, str) or sha256(prev.encode() + raw).hexdigest() != digest:
            self.found("edited", f"Record {number} was edited: its content does not have its hash.", number)
        elif record.get("id") != number:
            self.found("moved", f"Record {number} was moved: it was written as {record.get('id')}.", number)
        elif prev != self.last.hash and not gap:
            self.found("unlinked", f"Record {number} does not follow {number - 1}: one of them was replaced.", number)
        self._compare(number, record, columns)
        if (first := erasing_of(record)) is not None:
            self.erasings.add(first)
        self.records += 1
        self.last = Head(number, digest)
        self._expected.discard(self.last)

    def _compare(self, number: int, record: JsonObject, columns: Sequence[Any]) -> None:
        pairs = zip(COLUMNS, columns, stored(columns_of(record)), strict=True)
        changed = [name for name, column, written in pairs if column != written]
        if changed and record:
            self.found("columns", f"Columns of record {number} differ from its content: {', '.join(changed)}.", number)

    def end(self) -> None:
        """Whatever was known to be written must have been met."""
        for head in sorted(self._expected):
            if head.number > self.last.number:
                lost = span(self.last.number + 1, head.number)
                self.found("cut", f"{lost} gone, although written before.", head.number)
            else:
                self.found("head", f"Record {head.number} is not the one that was written.", head.number)


def _parsed(body: bytes) -> JsonObject:
    try:
        record: Json = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return record if is_object(record) else {}
