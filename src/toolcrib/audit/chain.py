"""The chain: gives every record its number and the hash of the record before it, in the order of the commits.

A record's `hash` is the SHA-256 of the previous record's hash (64 hex digits; zeros for the first) followed by the
bytes of the record's own JSON, which are stored as they are. Nothing that was written can change without all later
hashes changing too. Two cribs may write to one chain in a shared database: who comes second takes up the other's end.
In the store's journal a record is a line of its hash and its JSON, which proves itself as it does in the chain. It must
never number a record before its turn to be kept has come.
"""

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple, TypeAlias

import orjson
from sqlalchemy import Select

from toolcrib.audit.head import Head, HeadFile
from toolcrib.model.json import JsonObject, is_object
from toolcrib.store.audit import tail
from toolcrib.store.batch import Journalled, Row
from toolcrib.store.schema import audit, escape

COLUMNS = ("at", "phase", "door", "principal", "agent", "session", "server", "tool", "decision")
"""The columns between hash and body, in the order of the table."""
_LAST = ("server", "tool", "decision")
_BODY = re.compile(rb'\{"id":(\d{1,19}),(.*),"prev":"([0-9a-f]{64})"\}', re.DOTALL)


Entry: TypeAlias = tuple[bytes, tuple[str | None, ...]]
"""A record without number and link: its JSON members as bytes, and its columns."""


class Left(NamedTuple):
    """A record found in the journal: its place in the chain, what it follows, and the record itself."""

    head: Head
    prev: Head
    entry: Entry


class Chain(Journalled[Entry]):
    """The log of the records. `head` is where the next one goes on, `durable` the last one known to be in the table."""

    table = audit
    head: Head

    def __init__(self, file: HeadFile, head: Head) -> None:
        self._file = file
        self.head = self.durable = head

    def rows(self, items: Sequence[Entry]) -> list[Row]:
        """The records, numbered and linked."""
        number, link = self.head
        rows: list[Row] = []
        for members, columns in items:
            number += 1
            prev = link.encode()
            body = b'{"id":%d,%b,"prev":"%b"}' % (number, members, prev)
            link = sha256(prev + body).hexdigest()
            rows.append((number, link, *columns, body))
        self.head = Head(number, link)
        return rows

    def line(self, row: Row) -> bytes:
        """The record as the journal holds it."""
        return b"%b %b" % (row[1].encode(), row[-1])

    def tail(self) -> Select[Any, Any]:
        """The record that was the newest when we last looked, and the newest now."""
        return tail(self.head.number)

    def resume(self, rows: Sequence[Row]) -> None:
        """Go on from the newest record there is; keep a note if what was the newest is no longer in the chain."""
        number, link = self.head
        there = {row[0]: row[1] for row in rows}
        newest = Head(*rows[-1]) if rows else Head()
        if number and there.get(number) != link:
            if newest.number < number:
                self._file.note(f"{span(newest.number + 1, number)} gone, although written before.")
            else:
                self._file.note(f"Record {number} is not the one that was written.")
        self.head = newest

    def committed(self) -> None:
        """The records up to `head` are in the database."""
        self.durable = self.head
        self._file.write(self.head)


def unbroken(lines: Sequence[bytes]) -> list[Left]:
    """The records of a journal, each following the one before it, up to the first line that is torn or old."""
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
    columns = stored(columns_of(orjson.loads(body)))
    return Left(Head(number, digest.decode()), Head(number - 1, found[3].decode()), (found[2], columns))


def span(first: int, last: int) -> str:
    """Records in words, with their verb."""
    return f"Record {first} is" if first == last else f"Records {first} to {last} are"


def columns_of(record: JsonObject) -> tuple[str | None, ...]:
    """The columns of a record beside number, hash and body, taken from its JSON (`COLUMNS`)."""
    principal = record.get("principal")
    who: JsonObject = principal if is_object(principal) else {}
    asker = (who.get("name"), who.get("agent"), who.get("session"))
    values = (record.get("at"), record.get("phase"), record.get("door"), *asker, *map(record.get, _LAST))
    return tuple(value if isinstance(value, str) else None for value in values)


def stored(columns: tuple[str | None, ...]) -> tuple[str | None, ...]:
    """Columns as the table holds them."""
    return tuple(None if value is None else escape(value) for value in columns)
