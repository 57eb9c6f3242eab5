"""The chain as lines of JSON, one record each, which prove themselves wherever they are taken.

A line is a record's own bytes with its hash added as the last member. Whoever takes that member off again has exactly
what was hashed, so a file of lines can be checked without a database, and by anybody: the hash of a record is the
SHA-256 of the hash before it followed by the record's bytes.

Above: `segments` keeps old records as such lines; API and command line hand them out. Below: the store. It must never
write a damaged record as if it were whole, nor let one forge another line.
"""

import re
from collections.abc import AsyncIterator, Iterable
from hashlib import sha256
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection

from toolcrib.audit.chain import span
from toolcrib.audit.head import Head
from toolcrib.errors import Conflict
from toolcrib.store.audit import page
from toolcrib.store.engine import Store

_PAGE = 1000
_LINE = re.compile(rb'(\{"id":(\d{1,19}),.*,"prev":"([0-9a-f]{64})"),"hash":"([0-9a-f]{64})"\}\n?')


class Line(NamedTuple):
    """A record in a line: its place in the chain, the hash it follows, its bytes."""

    head: Head
    prev: str
    body: bytes


async def export(
    store: Store, *, after: int = 0, upto: int | None = None, most: int | None = None
) -> AsyncIterator[bytes]:
    """The records of the database after this number in order, up to and with another; those that come meanwhile too."""
    left = most
    while True:
        rows = await store.read(lambda connection, after=after: _page(connection, after))
        for number, line in rows:
            if (upto is not None and number > upto) or left == 0:
                return
            yield line
            after, left = number, None if left is None else left - 1
        if len(rows) < _PAGE:
            return


def _page(connection: Connection, after: int) -> list[tuple[int, bytes]]:
    return [(row[0], _line(row[0], row[1], row[-1])) for row in page(connection, after, _PAGE)]


def _line(number: int, digest: Any, body: Any) -> bytes:
    if isinstance(body, bytes) and isinstance(digest, str):
        line = b'%b,"hash":"%b"}\n' % (body[:-1], digest.encode(errors="replace"))
        if read_line(line) is not None:
            return line
    shown = {"id": number, "hash": str(digest), "damaged": True, "body": bytes(body or b"").decode("latin-1")}
    return orjson.dumps(shown, option=orjson.OPT_APPEND_NEWLINE)


def read_line(line: bytes) -> Line | None:
    """The record of a line; None if it is not one, or does not have its hash."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    body = found[1] + b"}"
    if sha256(found[3] + body).hexdigest().encode() != found[4]:
        return None
    return Line(Head(int(found[2]), found[4].decode()), found[3].decode(), body)


def follow(lines: Iterable[bytes], start: Head | None = None) -> Head:
    """Check that lines are one piece of the chain that begins after `start`; gives its end.

    Without `start` the first line may be any record. Raises `Conflict` (`audit.broken`) at the first that is wrong.
    """
    last = start
    for number, line in enumerate(lines, 1):
        record = read_line(line)
        if record is None:
            raise Conflict("audit.broken", f"Line {number} is not a whole record: it was edited or cut.")
        if last is not None and record.head.number != last.number + 1:
            gap = span(last.number + 1, record.head.number - 1)
            raise Conflict("audit.broken", f"Line {number} is record {record.head.number}: {gap} missing before it.")
        if last is not None and record.prev != last.hash:
            raise Conflict("audit.broken", f"Record {record.head.number} does not follow the one before it.")
        last = record.head
    return last or Head()
