"""SQLite: one file, one writing connection on the event loop itself, reading connections in threads.

A commit takes some 30 µs, far less than handing it to a thread, so all requests of one turn of the loop are committed
at its end, right there. What may take longer is kept off the loop: a lock held by another process is waited for with a
timer, and the write-ahead log is moved into the file by a thread.

Rows of a journalled log do not wait for a commit. With the first one the transaction begins, which keeps their numbers
free and shows that the database can be written; each is durable when the journal has it; they are inserted and
committed at the end of the turn, or together with those that follow if there was a commit a moment ago. A crowd needs
no journal: it shares a commit anyhow.

Above: `engine` opens it. Below: sqlite3. It must never wait on the loop for anything but the disk.
"""

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import anyio.to_thread
from sqlalchemy import Engine, NullPool, QueuePool, Table, create_engine
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from toolcrib.settings import Durability
from toolcrib.store.batch import (
    Apart,
    Append,
    Held,
    Item,
    Journalled,
    Log,
    Queue,
    Request,
    fail,
    insert_into,
    prepare,
    settle,
    undo,
)
from toolcrib.store.failures import translated, unavailable
from toolcrib.store.files import check, claim
from toolcrib.store.journal import Journal
from toolcrib.store.upgrade import prepare_schema

Connect: TypeAlias = Callable[[], sqlite3.Connection]

_READERS = 4
_CHECKPOINT_EVERY = 2000
"""Rows between two checkpoints: some thousand pages, which is SQLite's own measure."""
_CHECKPOINT_BACKSTOP = 16_000
"""Pages after which the writer checkpoints by itself, should the thread never find a pause to finish in."""
_PATIENCE = 5.0
"""Seconds for which a lock held by another process is waited for."""
_CROWD = 8
"""Rows that may have lines in the journal before it is looked whether so many come in one turn of the loop that one
commit for all of them would cost less."""
_RETRY = 1.0
"""Seconds until what is ahead of a failing database is tried again, should nobody come earlier."""
_AHEAD = 0.05
"""Seconds for which rows that the journal has may be missing in the database, while they come one after the other."""


@asynccontextmanager
async def open_sqlite(path: Path, durability: Durability, alone: bool) -> AsyncGenerator[tuple[Engine, "SqliteWriter"]]:
    """Open the file, bring its schema up to date, and give what reads it and what writes it.

    Only who is `alone` has a journal. Where the disk is waited for it would save nothing, and is only looked into for
    what another run has left.
    """
    write = partial(_connect, path, f"synchronous={'FULL' if durability == 'power' else 'NORMAL'}")
    read = partial(_connect, path, "query_only=ON")
    with translated(str(path)):
        await anyio.to_thread.run_sync(_prepare, path, write)
        journal = Journal(beside(path, "-pending")) if alone and hasattr(os, "pwrite") else None
        writer = SqliteWriter(await anyio.to_thread.run_sync(write), write, journal, ahead=durability == "process")
    engine = create_engine("sqlite://", creator=read, poolclass=QueuePool, pool_size=_READERS, max_overflow=0)
    try:
        yield engine, writer
    finally:
        engine.dispose()
        writer.close()


def beside(path: Path, suffix: str) -> Path:
    """The file next to the database that has this suffix."""
    return path.with_name(path.name + suffix)


def _prepare(path: Path, connect: Connect) -> None:
    claim(path)
    for other in (beside(path, "-wal"), beside(path, "-shm")):
        if os.path.lexists(other):
            check(other)
    with create_engine("sqlite://", creator=connect, poolclass=NullPool).connect() as connection:
        prepare_schema(connection, lock="BEGIN IMMEDIATE")


def _connect(path: Path, *pragmas: str) -> sqlite3.Connection:
    """A connection that begins no transaction by itself; it may move between threads but not be shared by two."""
    connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
    for pragma in ("journal_mode=WAL", "foreign_keys=ON", *pragmas):
        connection.execute(f"PRAGMA {pragma}")
    return connection


class SqliteWriter(Queue):
    """The one connection that writes."""

    shared = False

    def __init__(
        self, connection: sqlite3.Connection, connect: Connect, journal: Journal | None, *, ahead: bool
    ) -> None:
        super().__init__(SQLiteDialect_pysqlite(paramstyle="named"))
        self._db = connection
        self._db.execute("PRAGMA busy_timeout=0")
        self._db.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_BACKSTOP}")
        self._cursor = self._db.cursor()  # one for all statements: making one takes longer than using it
        self._inserts: dict[Table, str] = {}
        self._blocked_since: float | None = None
        self._connect = connect
        self._crowded = False
        self._in_turn = 0
        self._few = 1
        self._checkpointed = 0
        self._checkpoints = ThreadPoolExecutor(1, "toolcrib-checkpoint")
        self._checkpoint: Future[None] | None = None
        self._journal = journal
        self._may_get_ahead = ahead
        self._journalled: Journalled[Any] | None = None
        self._held: Held | None = None
        self._due: asyncio.Handle | None = None
        self._failing = False
        self._last_commit = 0.0

    def journalled(self) -> list[bytes]:
        """The lines the journal was left with."""
        return self._journal.read() if self._journal else []

    def journal(self, log: Journalled[Any] | None) -> bool:
        """Use the journal for the rows of this log."""
        if self._journal is None:
            return False
        if self.catch_up():
            self._journal.clear()
        self._journalled = log if self._may_get_ahead else None
        self._few, self._in_turn = (1 if self._journalled is None else _CROWD), 0
        return True

    def append_now(self, log: Log[Any], item: Any) -> int | None:
        """Add one item to a log if the journal takes its row."""
        ahead = self._journalled
        if ahead is None or ahead is not log or self._crowded or self.waiting or self._failing or self.closed:
            return None
        number = self._hold(ahead, item)
        if number is not None:
            self._count()
        return number

    def append(self, log: Log[Item], item: Item) -> "asyncio.Future[int]":
        """Add one item to a log, at once where the journal takes its row."""
        number = self.append_now(log, item)
        if number is None:
            return super().append(log, item)
        future: asyncio.Future[int] = self.loop.create_future()
        future.set_result(number)
        return future

    def _hold(self, log: Journalled[Any], item: Any) -> int | None:
        """Write the row of this item to the journal, for the database to get it soon; gives its number.

        None if anything speaks against it; then nothing has happened but that a transaction may have begun.
        """
        held, before = self._held, log.head
        try:
            if held is None:
                self._begin()
                held = Held(log, [])
                held.rows()
            (row,) = log.rows((item,))
            kept = self._journal is not None and self._journal.add(log.line(row))
        except Exception:  # noqa: BLE001 boundary: the queue meets the same fault again, and tells the caller
            log.head = before
            return None
        if not kept:
            log.head = before
            return None
        held.add(item, row)
        if self._held is None:
            self._held = held
            pause = self._last_commit + _AHEAD - self.loop.time()
            self._due = self.loop.call_soon(self.catch_up) if pause <= 0 else self.loop.call_later(pause, self.catch_up)
        return row[0]

    def catch_up(self) -> bool:
        """Commit what is ahead. If that fails it is tried again later, and nothing more gets ahead until then."""
        if self._held is not None:
            self._flush()
        return self._held is None

    def wake(self) -> None:
        """Commit at once while callers come one by one; once they crowd, together at the end of each turn of the loop.

        Who is alone is spared two turns of the loop per call; who is not shares the price of a commit.
        """
        if self._crowded:
            self.loop.call_soon(self._flush)
            return
        self._count()
        self._flush()

    def _count(self) -> None:
        """See whether callers crowd. Only now and then: to hear of the end of every turn costs as much as a line."""
        self._in_turn += 1
        if self._in_turn == self._few:
            self.loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        # Who is alone adds two rows in a turn at most, in whatever turns the first few came.
        self._crowded, self._in_turn = self._in_turn > self._few * 3 // 2 + 1, 0

    def close(self) -> None:
        """Commit what waits, for the last time, and close."""
        self.closed = True
        self._db.execute("PRAGMA busy_timeout=1000")  # there is no later turn to try again in
        self._blocked_since = self.loop.time() - _PATIENCE
        self._flush()
        self._held = None  # if it could not be committed, the journal keeps it for the next time
        self._checkpoints.shutdown()
        self._db.close()
        if self._journal is not None:
            self._journal.close()

    def _flush(self) -> None:
        batch = self.take()
        if self._held is not None:
            batch.insert(0, self._held)
        if not batch:
            return
        self._crowded = self._crowded and sum(request.callers for request in batch) > 1
        try:
            self._commit_together(batch)
        except Exception as error:  # noqa: BLE001 boundary: whoever caused it is told, the loop and all others go on
            self._roll_back(batch)
            if _is_fault_of_request(error):
                self._retry_apart(batch)
            else:
                self._wait_or_fail(batch, error)
        else:
            self._committed()
            settle(batch)

    def _commit_together(self, batch: Sequence[Request]) -> None:
        self._begin()
        for request in batch:
            self._run(request)
        self._cursor.execute("COMMIT")

    def _begin(self) -> None:
        if not self._db.in_transaction:
            self._cursor.execute("BEGIN IMMEDIATE")

    def _run(self, request: Request) -> None:
        if isinstance(request, Append):
            insert = self._inserts.get(request.log.table) or self._insert_into(request.log.table)
            rows = request.rows()
            if len(rows) == 1:
                self._cursor.execute(insert, rows[0])
            else:
                self._cursor.executemany(insert, rows)
            return
        counts: list[int] = []
        for sql, parameters in request.statements:
            run = self._cursor.executemany if isinstance(parameters, list) else self._cursor.execute
            counts.append(run(sql, parameters).rowcount)
        request.counts = tuple(counts)

    def _insert_into(self, table: Table) -> str:
        insert = self._inserts[table] = insert_into(table, SQLiteDialect_pysqlite(paramstyle="qmark"))
        return insert

    def _retry_apart(self, batch: list[Request]) -> None:
        """Run the batch again, every request in a savepoint, logs resumed from what the database holds."""
        apart = Apart(batch)
        execute = self._cursor.execute
        try:
            self._begin()
            for request in apart:
                execute("SAVEPOINT request")
                try:
                    if isinstance(request, Append):
                        request.log.resume(execute(*prepare(request.log.tail(), self.dialect)).fetchall())
                    self._run(request)
                    apart.kept.append(request)
                except Exception as error:  # boundary: it is this request's own fault, or the whole batch fails
                    if not _is_fault_of_request(error):
                        raise
                    execute("ROLLBACK TO request")
                    apart.refuse(request, error)
                execute("RELEASE request")
            execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back(apart.kept)
            self._wait_or_fail(batch, error)
            return
        self._committed()
        apart.settle(sqlite3.IntegrityError)

    def _roll_back(self, batch: Sequence[Request]) -> None:
        with contextlib.suppress(sqlite3.Error):  # a full disk may have ended the transaction already
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        undo(batch)

    def _wait_or_fail(self, batch: list[Request], error: Exception) -> None:
        """Try again soon if another process holds the lock and has not held it for too long; keep what is ahead."""
        self._failing = True
        now = self.loop.time()
        if self._held is not None:
            self._held.rows()
            batch = [request for request in batch if request is not self._held]
            self._due = self.loop.call_later(_RETRY, self.catch_up)
        since = now if self._blocked_since is None else self._blocked_since
        if _primary_code(error) == sqlite3.SQLITE_BUSY and now - since < _PATIENCE:
            self._blocked_since = since
            self.waiting[:0] = batch
            self.loop.call_later(min(0.1, 0.001 + (now - since) / 4), self._flush)
            return
        self._blocked_since = None
        fail(batch, partial(unavailable, error))

    def _committed(self) -> None:
        self._blocked_since, self._failing = None, False
        if self._held is not None and self._journal is not None and self._due is not None:
            self._held = None
            self._journal.clear()
            self._due.cancel()
        self._last_commit = self.loop.time()
        changes = self._db.total_changes
        if changes - self._checkpointed >= _CHECKPOINT_EVERY and (self._checkpoint is None or self._checkpoint.done()):
            self._checkpointed = changes
            self._checkpoint = self._checkpoints.submit(self._move_log_into_file)

    def _move_log_into_file(self) -> None:
        with contextlib.suppress(sqlite3.Error), contextlib.closing(self._connect()) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


def _primary_code(error: BaseException) -> int:
    """SQLite's own code of an error; `SQLITE_ERROR` for what did not come from SQLite."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _is_fault_of_request(error: Exception) -> bool:
    """Whether somebody's statement or row is wrong; everything else is the state of the database."""
    if isinstance(error, sqlite3.OperationalError):
        return _primary_code(error) == sqlite3.SQLITE_ERROR
    faults = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.DataError)
    return not isinstance(error, sqlite3.DatabaseError) or isinstance(error, faults)
