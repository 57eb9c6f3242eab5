"""SQLite: one file, one writing connection on the event loop itself, reading connections in threads.

A commit takes about 30 µs, far less than handing it to a thread, so all requests of one turn of the loop are committed
at its end. Slower work stays off the loop: a lock held by another process is retried with a timer, and a thread
checkpoints the write-ahead log.

Rows of a journalled log do not wait for a commit. The first one begins the transaction, which reserves their numbers
and proves that the database is writable. Each row is durable once the journal has it. They are committed at the end of
the turn, or together with later ones if a commit was made a moment ago. Many concurrent callers need no journal, since
they share a commit.

Must never wait on the loop for anything but the disk.
"""

import asyncio
import contextlib
import logging
import os
import re
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import anyio.to_thread
from sqlalchemy import Engine, NullPool, QueuePool, Table, create_engine
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from toolcrib.base.files.private import PLAIN, check, claim
from toolcrib.base.settings import Durability
from toolcrib.model.errors import ToolcribError
from toolcrib.store.backup import DATABASE, write_backup
from toolcrib.store.batch import (
    Apart,
    Append,
    Fence,
    Item,
    Journalled,
    Log,
    OnFailure,
    Queue,
    Request,
    Row,
    fail,
    insert_into,
    prepare,
    settle,
    undo,
)
from toolcrib.store.failures import translate_errors, unavailable
from toolcrib.store.upgrade import prepare_schema

logger = logging.getLogger(__name__)

Connect: TypeAlias = Callable[[], sqlite3.Connection]

_READERS = 4
_CHECKPOINT_EVERY = 2000
"""Rows between two checkpoints: about a thousand pages, SQLite's own default."""
_CHECKPOINT_BACKSTOP = 16_000
"""Pages after which the writer checkpoints by itself, in case the thread never gets to finish."""
_PATIENCE = 5.0
"""Seconds to wait for a lock held by another process."""
_CROWD = 8
"""Journalled rows after which the writer checks whether so many arrive in one turn of the loop that one shared commit
would be cheaper.
"""
_RETRY = 1.0
"""Seconds until journalled rows are retried on a failing database, unless a request comes earlier."""
_AHEAD = 0.05
"""Seconds that journalled rows may be missing in the database while they arrive one by one."""
_JOURNAL_NAME = re.compile(rb"journal ([0-9a-f]{32})\n")
_JOURNAL_NAME_LENGTH = 41
_JOURNAL_ROOM = 1024 * 1024
"""Maximum bytes of rows ahead of the database."""


@asynccontextmanager
async def open_sqlite(path: Path, durability: Durability, alone: bool) -> AsyncGenerator[tuple[Engine, "SqliteWriter"]]:
    """Open the file, migrate its schema, and yield the engine for reading and the writer.

    Only a crib that is `alone` has a journal. With durability `power` it would save nothing, and is only read for rows
    left by another run.
    """
    write = partial(_connect, path, f"synchronous={'FULL' if durability == 'power' else 'NORMAL'}")
    read = partial(_connect, path, "query_only=ON")
    with translate_errors(str(path)):
        await anyio.to_thread.run_sync(_prepare, path, write)
        journal = Journal(file_beside(path, "-pending")) if alone and hasattr(os, "pwrite") else None
        writer = SqliteWriter(await anyio.to_thread.run_sync(write), write, journal, ahead=durability == "process")
    engine = create_engine("sqlite://", creator=read, poolclass=QueuePool, pool_size=_READERS, max_overflow=0)
    try:
        yield engine, writer
    finally:
        engine.dispose()
        writer.close()


def file_beside(path: Path, suffix: str) -> Path:
    """Return the file next to the database with this suffix."""
    return path.with_name(path.name + suffix)


def _prepare(path: Path, connect: Connect) -> None:
    claim(path)
    for other in (file_beside(path, "-wal"), file_beside(path, "-shm")):
        if os.path.lexists(other):
            check(other)
    with create_engine("sqlite://", creator=connect, poolclass=NullPool).connect() as connection:
        prepare_schema(connection, "BEGIN IMMEDIATE", partial(_back_up, path))


def _back_up(path: Path, revision: str) -> None:
    """Back up a database before a migration. A failure is logged: the migration is one transaction."""
    if not revision:
        return
    folder = path.with_name("database-backups")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
        to = folder / f"before-migration-{revision}-{stamp}.zip"
        write_backup(path, to, {f"{DATABASE}-pending": file_beside(path, "-pending")})
    except (OSError, ToolcribError) as error:
        logger.warning("The database was not backed up before its migration: %s", error)


def _connect(path: Path, *pragmas: str) -> sqlite3.Connection:
    """Return a connection without implicit transactions; it may move between threads but must not be shared."""
    connection = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
    for pragma in ("journal_mode=WAL", "foreign_keys=ON", *pragmas):
        connection.execute(f"PRAGMA {pragma}")
    return connection


class JournalledRows(Append):
    """Items whose rows are already durable in the journal: no caller waits, but they must reach the table."""

    __slots__ = ()

    def __init__(self, log: Log[Any], items: list[Any]) -> None:
        super().__init__(log, items, [], [])

    def add(self, item: Any, row: Row) -> None:
        """Add an item with the row that was built for it, after those before it, whose rows must be built."""
        assert self.made is not None
        self.items.append(item)
        self.made.append(row)

    def parts(self) -> "list[Append]":
        """Return one request per item."""
        return [JournalledRows(self.log, [item]) for item in self.items]

    def settle(self) -> None:
        """Mark the rows as committed, possibly with other numbers than in the journal."""
        self.log.committed()

    def fail(self, failure: Callable[[], Exception]) -> None:
        """Log the loss: the table refuses the rows, and no caller waits for them."""
        logger.error("%d rows were lost: %s", len(self.items), failure())


class Journal:
    """A file of rows that are durable but not in the database yet, held open by the one process that uses it.

    A commit costs as much as the rest of a small call; a write to an open file is almost free and survives the death of
    its process. A row is durable once its line is here, and many rows share the commit that follows. When all of them
    are in the database, writing restarts at the beginning. Lines after that point are old; the log has to distinguish
    old and torn lines from valid ones. The first line names the journal, so that one removed or replaced after a crash
    is noticed.

    Must never stop a call: a row that does not fit is committed immediately.
    """

    def __init__(self, path: Path) -> None:
        claim(path)
        self._descriptor = os.open(path, os.O_RDWR | PLAIN)
        named = _JOURNAL_NAME.match(os.pread(self._descriptor, _JOURNAL_NAME_LENGTH, 0))
        self.found = named[1].decode() if named is not None else None
        """The id of the journal that was found; None if it is new, empty or damaged."""
        self.is_over = False
        """Whether the id is no longer referenced."""
        self._end: int | None = None

    def read(self) -> list[bytes]:
        """Return all lines, including old and torn ones."""
        return os.pread(self._descriptor, _JOURNAL_ROOM, _JOURNAL_NAME_LENGTH if self.found is not None else 0).split(
            b"\n"
        )

    def begin(self, id: str) -> bool:
        """Name the journal and restart at its beginning; its rows must be in the database. Return False on failure."""
        line = b"journal %b\n" % id.encode()
        assert len(line) == _JOURNAL_NAME_LENGTH
        try:
            # In this order: if killed in between, the journal has its name and only old lines.
            is_named = os.pwrite(self._descriptor, line, 0) == _JOURNAL_NAME_LENGTH
            os.ftruncate(self._descriptor, _JOURNAL_NAME_LENGTH)
        except OSError:
            is_named = False
        self._end = _JOURNAL_NAME_LENGTH if is_named else None
        return is_named

    def clear(self) -> None:
        """Allow lines to be overwritten: all of them are in the database."""
        if self._end is not None:
            self._end = _JOURNAL_NAME_LENGTH

    def add(self, line: bytes) -> bool:
        """Write a line; return False if there is no room or writing fails."""
        if self._end is None or self._end + len(line) >= _JOURNAL_ROOM:
            return False
        try:
            written = os.pwrite(self._descriptor, line + b"\n", self._end)
        except OSError:
            return False
        if written <= len(line):
            return False
        self._end += written
        return True

    def close(self) -> None:
        """Close the file, and empty it unless it is still needed."""
        if self._end == _JOURNAL_NAME_LENGTH:
            os.ftruncate(self._descriptor, 0 if self.is_over else _JOURNAL_NAME_LENGTH)
        os.close(self._descriptor)


class SqliteWriter(Queue):
    """The single writing connection."""

    shared = False

    def __init__(
        self, connection: sqlite3.Connection, connect: Connect, journal: Journal | None, *, ahead: bool
    ) -> None:
        super().__init__(SQLiteDialect_pysqlite(paramstyle="named"))
        self._db = connection
        self._db.execute("PRAGMA busy_timeout=0")
        self._db.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_BACKSTOP}")
        self._cursor = self._db.cursor()  # one for all statements: creating one takes longer than using it
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
        self._held: JournalledRows | None = None
        self._flush_timer: asyncio.Handle | None = None
        self._failing = False
        self._last_commit = 0.0

    def journalled(self) -> list[bytes]:
        """Return the lines found in the journal."""
        return self._journal.read() if self._journal else []

    def journal_found(self) -> str | None:
        """Return the id of the journal that was found."""
        return self._journal.found if self._journal else None

    @property
    def has_journal(self) -> bool:
        """Whether a journal is read, used or not."""
        return self._journal is not None

    def forget_journal(self) -> bool:
        """Remove the journal's name when it is closed."""
        if self._journal is None:
            return False
        self._journal.is_over = True
        return True

    def journal(self, log: Journalled[Any] | None, id: str) -> bool:
        """Use the journal for the rows of this log."""
        if self._journal is None:
            return False
        is_caught_up = self.catch_up()
        is_clear = log is not None and is_caught_up and self._journal.begin(id)
        uses = is_clear and self._may_get_ahead
        self._journalled = log if uses else None
        self._few, self._in_turn = (1 if self._journalled is None else _CROWD), 0
        return uses if log is not None else is_caught_up

    def append_now(self, log: Log[Any], item: Any) -> int | None:
        """Append an item to a log if the journal accepts its row."""
        ahead = self._journalled
        if ahead is None or ahead is not log or self._crowded or self.waiting or self._failing or self.closed:
            return None
        number = self._hold(ahead, item)
        if number is not None:
            self._count()
        return number

    def append(
        self, log: Log[Item], item: Item, fence: Fence | None = None, on_failure: OnFailure | None = None
    ) -> "asyncio.Future[int]":
        """Append an item to a log, immediately if the journal accepts its row. There is no other crib to fence off."""
        number = self.append_now(log, item)
        if number is None:
            return super().append(log, item, on_failure=on_failure)
        future: asyncio.Future[int] = self.loop.create_future()
        future.set_result(number)
        return future

    def _hold(self, log: Journalled[Any], item: Any) -> int | None:
        """Write the row of this item to the journal, to be committed soon; return its number.

        Returns None on any failure; then nothing has happened, except that a transaction may have begun.
        """
        held, before = self._held, log.head
        try:
            if held is None:
                self._begin()
                held = JournalledRows(log, [])
                held.rows()
            (row,) = log.rows((item,))
            kept = self._journal is not None and self._journal.add(log.line(row))
        except Exception:  # noqa: BLE001 boundary: the queue hits the same error again and raises it to the caller
            log.head = before
            return None
        if not kept:
            log.head = before
            return None
        held.add(item, row)
        if self._held is None:
            self._held = held
            pause = self._last_commit + _AHEAD - self.loop.time()
            self._flush_timer = (
                self.loop.call_soon(self.catch_up) if pause <= 0 else self.loop.call_later(pause, self.catch_up)
            )
        return row[0]

    def catch_up(self) -> bool:
        """Commit the journalled rows. After a failure it is retried later, and no rows are journalled until then."""
        if self._held is not None:
            self._flush()
        return self._held is None

    def wake(self) -> None:
        """Commit immediately while callers come one by one; under load, at the end of each turn of the loop.

        A single caller saves two turns of the loop per call; concurrent callers share the cost of a commit.
        """
        if self._crowded:
            self.loop.call_soon(self._flush)
            return
        self._count()
        self._flush()

    def _count(self) -> None:
        """Check for concurrent callers. Only occasionally: scheduling a callback every turn costs as much as a line."""
        self._in_turn += 1
        if self._in_turn == self._few:
            self.loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        # A single caller adds at most two rows per turn, in whatever turns the first few came.
        self._crowded, self._in_turn = self._in_turn > self._few * 3 // 2 + 1, 0

    def close(self) -> None:
        """Commit pending requests a last time, and close."""
        self.closed = True
        self._db.execute("PRAGMA busy_timeout=1000")  # there is no later turn for a retry
        self._blocked_since = self.loop.time() - _PATIENCE
        self._flush()
        self._held = None  # if it was not committed, the journal keeps it for the next run
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
        except Exception as error:  # noqa: BLE001 boundary: only the caller at fault gets the error
            self._roll_back(batch)
            if _is_fault_of_request(error):
                self._retry_apart(batch)
            else:
                self._wait_or_fail(batch, error)
        else:
            self._on_commit()
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
        """Rerun the batch with every request in a savepoint; logs resume from the database."""
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
                except Exception as error:  # boundary: the fault of this request alone, or the whole batch fails
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
        self._on_commit()
        apart.settle(sqlite3.IntegrityError)

    def _roll_back(self, batch: Sequence[Request]) -> None:
        with contextlib.suppress(sqlite3.Error):  # a full disk may already have ended the transaction
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        undo(batch)

    def _wait_or_fail(self, batch: list[Request], error: Exception) -> None:
        """Retry soon while another process holds the lock, up to the timeout; keep journalled rows."""
        self._failing = True
        now = self.loop.time()
        if self._held is not None:
            self._held.rows()
            batch = [request for request in batch if request is not self._held]
            self._flush_timer = self.loop.call_later(_RETRY, self.catch_up)
        since = now if self._blocked_since is None else self._blocked_since
        if _primary_code(error) == sqlite3.SQLITE_BUSY and now - since < _PATIENCE:
            self._blocked_since = since
            self.waiting[:0] = batch
            self.loop.call_later(min(0.1, 0.001 + (now - since) / 4), self._flush)
            return
        self._blocked_since = None
        fail(batch, partial(unavailable, error))

    def _on_commit(self) -> None:
        self._blocked_since, self._failing = None, False
        if self._held is not None and self._journal is not None and self._flush_timer is not None:
            self._held = None
            self._journal.clear()
            self._flush_timer.cancel()
        self._last_commit = self.loop.time()
        changes = self._db.total_changes
        if changes - self._checkpointed >= _CHECKPOINT_EVERY and (self._checkpoint is None or self._checkpoint.done()):
            self._checkpointed = changes
            self._checkpoint = self._checkpoints.submit(self._move_log_into_file)

    def _move_log_into_file(self) -> None:
        with contextlib.suppress(sqlite3.Error), contextlib.closing(self._connect()) as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


def _primary_code(error: BaseException) -> int:
    """Return SQLite's primary error code; `SQLITE_ERROR` for other exceptions."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _is_fault_of_request(error: Exception) -> bool:
    """Return whether a statement or row is at fault; any other error is about the state of the database."""
    if isinstance(error, sqlite3.OperationalError):
        return _primary_code(error) == sqlite3.SQLITE_ERROR
    faults = (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.DataError)
    return not isinstance(error, sqlite3.DatabaseError) or isinstance(error, faults)
