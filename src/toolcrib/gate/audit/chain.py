"""The hash chain: assigns every record its number and the hash of its predecessor, in commit order.

A record's `hash` is the SHA-256 of the previous record's hash (64 hex digits; zeros for the first) followed by the
bytes of the record's own JSON, which are stored unchanged. Any later change to a record changes all hashes after it.
Every node of a shared database writes a chain of its own, its lane. If two processes write to one chain, the second
resumes from the end that the first wrote.

In the store's journal a record is a line of its hash and its JSON, which can be verified as in the chain. Must never
number a record before it is its turn to be stored.
"""

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import Select

from toolcrib.gate.audit.head import ChainHead, HeadFile, beginning
from toolcrib.model.json import JsonObject, is_object, loads
from toolcrib.store.audit import tail
from toolcrib.store.audit_lanes import lane_of
from toolcrib.store.batch import Journalled, Row
from toolcrib.store.schema import audit, escape

COLUMNS = ("at", "phase", "door", "principal", "agent", "session", "server", "tool", "decision")
"""The columns between hash and body, in table order."""
_LAST = ("server", "tool", "decision")
_THOUSANDTHS = [f".{number:03d}+00:00" for number in range(1000)]
_BODY = re.compile(rb'\{"id":(\d{1,19}),(.*),"prev":"([0-9a-f]{64})"\}', re.DOTALL)


Entry: TypeAlias = tuple[bytes, tuple[str | None, ...]]
"""A record without number and link: its JSON members as bytes, and its columns."""


class Left(NamedTuple):
    """A record found in the journal: its head, its predecessor, and the entry."""

    head: ChainHead
    prev: ChainHead
    entry: Entry


class Chain(Journalled[Entry]):
    """The log of the records. `head` is the current end, `durable` the last record known to be in the table."""

    table = audit
    head: ChainHead
    reads_policy_epoch = True

    def __init__(self, file: HeadFile, head: ChainHead) -> None:
        """`head` is a position in the lane that the chain continues."""
        self._file = file
        self.head = self.durable = head
        self.beginning = beginning(lane_of(head.number))

    def rows(self, items: Sequence[Entry]) -> list[Row]:
        """Return the records as numbered and linked rows."""
        number, link = self.head
        rows: list[Row] = []
        for members, columns in items:
            number += 1
            prev = link.encode()
            body = b'{"id":%d,%b,"prev":"%b"}' % (number, members, prev)
            link = sha256(prev + body).hexdigest()
            rows.append((number, link, *columns, body))
        self.head = ChainHead(number, link)
        return rows

    def line(self, row: Row) -> bytes:
        """Return the journal line of a record."""
        return b"%b %b" % (row[1].encode(), row[-1])

    def tail(self) -> Select[Any, Any]:
        """Select the record at `head` and the newest record."""
        return tail(self.head.number)

    def resume(self, rows: Sequence[Row]) -> None:
        """Continue from the newest record. Adds a note if the record at `head` is no longer in the chain."""
        number, link = self.head
        there = {row[0]: row[1] for row in rows}
        newest = ChainHead(*rows[-1]) if rows else self.beginning
        if number != self.beginning.number and there.get(number) != link:
            if newest.number < number:
                self._file.note(f"{span(newest.number + 1, number)} missing at the end of the chain.")
            else:
                self._file.note(f"Record {number} differs from the one that was written.")
        self.head = newest

    def committed(self) -> None:
        """Mark the records up to `head` as committed."""
        self.durable = self.head
        self._file.write(self.head)


def unbroken(lines: Sequence[bytes]) -> list[Left]:
    """Return the records of a journal that follow each other, up to the first torn or old line."""
    found: list[Left] = []
    for line in lines:
        record = _from_line(line)
        if record is None or (found and record.prev != found[-1].head):
            break
        found.append(record)
    return found


def _from_line(line: bytes) -> Left | None:
    digest, _, body = line.partition(b" ")
    found = _BODY.fullmatch(body)
    if found is None or sha256(found[3] + body).hexdigest().encode() != digest:
        return None
    number = int(found[1])
    columns = stored(columns_of(loads(body)))
    return Left(ChainHead(number, digest.decode()), ChainHead(number - 1, found[3].decode()), (found[2], columns))


def span(first: int, last: int) -> str:
    """Return a range of records in words, with its verb."""
    return f"Record {first} is" if first == last else f"Records {first} to {last} are"


def columns_of(record: JsonObject) -> tuple[str | None, ...]:
    """Return the columns of a record (`COLUMNS`), from its JSON."""
    principal = record.get("principal")
    shape: JsonObject = principal if is_object(principal) else {}
    caller = (shape.get("name"), shape.get("agent"), shape.get("session"))
    values = (record.get("at"), record.get("phase"), record.get("door"), *caller, *map(record.get, _LAST))
    return tuple(value if isinstance(value, str) else None for value in values)


def stored(columns: tuple[str | None, ...]) -> tuple[str | None, ...]:
    """Return columns as the table stores them."""
    return tuple(None if value is None else escape(value) for value in columns)


def current_moment() -> str:
    """Return the current time in the format of `moment`, at a quarter of the cost."""
    seconds, thousandths = divmod(time.time_ns() // 1_000_000, 1000)
    return _second(seconds) + _THOUSANDTHS[thousandths]


@lru_cache(maxsize=1)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]
