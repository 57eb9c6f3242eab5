"""Exports the chain as JSON lines, one record each, which can be verified on their own.

A line is a record's own bytes with its hash added as the last member. Without that member, a line is exactly what was
hashed, so a file of lines can be verified without a database: the hash of a record is the SHA-256 of the previous hash
followed by the record's bytes.

Must never write a damaged record as if it were intact, nor let one forge another line.
"""

import re
from collections.abc import AsyncIterator, Iterable
from hashlib import sha256
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection

from toolcrib.gate.audit.chain import span
from toolcrib.gate.audit.head import ChainHead
from toolcrib.model.errors import Conflict
from toolcrib.model.json import dumps
from toolcrib.store.audit import page
from toolcrib.store.audit_lanes import lane_of
from toolcrib.store.engine import Store

_PAGE = 1000
_LINE = re.compile(rb'(\{"id":(\d{1,19}),.*,"prev":"([0-9a-f]{64})"),"hash":"([0-9a-f]{64})"\}\n?')


class ExportedRecord(NamedTuple):
    """A record parsed from a line: its head, the previous hash and its bytes."""

    head: ChainHead
    prev: str
    body: bytes


async def export(
    store: Store, *, after: int = 0, upto: int | None = None, most: int | None = None
) -> AsyncIterator[bytes]:
    """Yield the records after `after` up to and including `upto`, also those added meanwhile."""
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
    return dumps(shown, option=orjson.OPT_APPEND_NEWLINE)


def read_line(line: bytes) -> ExportedRecord | None:
    """Return the record in a line, or None if the line is not a record or its hash is wrong."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    body = found[1] + b"}"
    if sha256(found[3] + body).hexdigest().encode() != found[4]:
        return None
    return ExportedRecord(ChainHead(int(found[2]), found[4].decode()), found[3].decode(), body)


def follow(lines: Iterable[bytes], start: ChainHead | None = None) -> ChainHead:
    """Verify that lines are one piece of the chain that starts after `start`, and return its end.

    Without `start`, the first line of each lane may be any record. Raises `Conflict` (`audit.broken`) at the first
    wrong line.
    """
    last = start
    for number, line in enumerate(lines, 1):
        record = read_line(line)
        if record is None:
            raise Conflict("audit.broken", f"Line {number} is not a complete record: it was edited or truncated.")
        if last is not None and lane_of(record.head.number) != lane_of(last.number):
            last = None  # the next lane begins, at its first record or where its sealed ones end
        if last is not None and record.head.number != last.number + 1:
            gap = span(last.number + 1, record.head.number - 1)
            raise Conflict("audit.broken", f"Line {number} is record {record.head.number}: {gap} missing before it.")
        if last is not None and record.prev != last.hash:
            raise Conflict("audit.broken", f"Record {record.head.number} does not follow the one before it.")
        last = record.head
    return last or ChainHead()
