"""Appends rows to logs on a connection of psycopg, without its cursors: they cost a call more than all its other work.

Each row is one execution of a prepared statement. All rows of a batch are sent as one pipeline. PostgreSQL runs it as
one transaction: after an error, none of the rows is stored.

Invariant: outside of `send` and the call of `ended`, the connection is as psycopg left it.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple, TypeAlias

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

Link: TypeAlias = psycopg.AsyncConnection[Any]
Ended: TypeAlias = Callable[[bytes | None, Exception | None], None]
"""Receives the first value that the last statement returned, or the error; then no row is stored."""


class RowInsert(NamedTuple):
    """An insert of one row, with a place `%s` for each parameter. `formats` are 1 for those that are bytes, else 0.

    `fence_at` is the position of the first parameter of the fence.
    """

    sql: str
    formats: tuple[int, ...]
    fence_at: int


class AppendPipeline:
    """One batch of rows in flight on a connection. `ended` is called once for every `send` that returned."""

    def __init__(self, link: Link, limit: float, ended: Ended) -> None:
        """`limit` is the number of seconds after which a batch fails."""
        self._loop = asyncio.get_running_loop()
        self._link = link
        self._connection = link.pgconn
        self._socket = link.pgconn.socket
        self._limit = limit
        self._ended = ended
        self._prepared: dict[str, bytes] = {}
        self._names = count()
        self._is_open = False
        self._is_writing = False
        self._value: bytes | None = None
        self._error: Exception | None = None
        self._deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def send(self, inserts: Sequence[tuple[RowInsert, Sequence[Sequence[Any]]]]) -> None:
        """Send the rows of each insert, whose values are strings, numbers, bytes or None. Raises `psycopg.Error`."""
        connection = self._connection
        if not self._is_open:
            connection.enter_pipeline_mode()
            self._loop.add_reader(self._socket, self._read)
            self._is_open = True
        self._value = self._error = None
        for insert, rows in inserts:
            name = self._prepared.get(insert.sql) or self._prepare(insert.sql)
            for row in rows:
                connection.send_query_prepared(name, _encode_row(row), insert.formats)
        connection.pipeline_sync()
        self._flush()
        self._watch()

    def leave(self) -> None:
        """Return the connection to psycopg. Idempotent; no batch may be in flight."""
        if self._is_open:
            self._stop_watching()
            self._connection.exit_pipeline_mode()

    def abandon(self) -> None:
        """Stop waiting for a batch in flight, because the connection will be closed. Idempotent."""
        self._deadline = None
        if self._timer is not None:
            self._timer.cancel()
        if self._is_open:
            self._stop_watching()

    def _stop_watching(self) -> None:
        self._is_open = False
        self._loop.remove_reader(self._socket)
        if self._is_writing:
            self._loop.remove_writer(self._socket)
            self._is_writing = False

    def _prepare(self, sql: str) -> bytes:
        # No name is used twice, because it is unknown which statements a failed batch prepared.
        name = self._prepared[sql] = b"toolcrib_%d" % next(self._names)
        first, *more = sql.split("%s")
        numbered = first + "".join(f"${number}{text}" for number, text in enumerate(more, 1))
        self._connection.send_prepare(name, numbered.encode())
        return name

    def _flush(self) -> None:
        """Send what is left to be sent; large batches do not fit into the buffer of the socket."""
        is_left = bool(self._connection.flush())
        if is_left and not self._is_writing:
            self._loop.add_writer(self._socket, self._write)
        elif self._is_writing and not is_left:
            self._loop.remove_writer(self._socket)
        self._is_writing = is_left

    def _write(self) -> None:
        try:
            self._flush()
        except psycopg.Error as error:
            self._end(error)

    def _read(self) -> None:
        connection = self._connection
        try:
            connection.consume_input()
            if self._is_writing:
                self._flush()
            while not connection.is_busy():
                result = connection.get_result()
                if result is not None and self._take(result):
                    self._end(self._error)
                    return
                if self._deadline is None:  # nothing is in flight: the server sent a notice
                    return
        except psycopg.Error as error:
            if self._deadline is None:
                self.abandon()
            else:
                self._end(error)

    def _take(self, result: PGresult) -> bool:
        """Use one result; return whether it is the end of the pipeline."""
        status = result.status
        if status == ExecStatus.TUPLES_OK:
            self._value = result.get_value(0, 0)
        elif status == ExecStatus.FATAL_ERROR:
            self._error = self._error or error_from_result(result)
        return status == ExecStatus.PIPELINE_SYNC

    def _end(self, error: Exception | None) -> None:
        self._deadline = None
        if error is not None:
            self._prepared = {}
        self._ended(self._value, error)

    def _watch(self) -> None:
        """Limit the time of this batch. One timer serves many: setting one takes longer than looking at it later."""
        self._deadline = self._loop.time() + self._limit
        if self._timer is None:
            self._timer = self._loop.call_later(self._limit, self._check)

    def _check(self) -> None:
        self._timer = None
        if self._deadline is not None:
            rest = self._deadline - self._loop.time()
            if rest > 0:
                self._timer = self._loop.call_later(rest, self._check)
            else:
                self._end(TimeoutError(f"it did not answer within {self._limit:.0f} s"))


def _encode_row(row: Sequence[Any]) -> list[bytes | None]:
    return [value.encode() if type(value) is str else b"%d" % value if type(value) is int else value for value in row]
