"""PostgreSQL: one writing connection served by a task, reading connections in threads.

While one batch is in flight the next one accumulates, so a busy crib commits many requests at once. Several cribs may
share a database. A crib that finds new rows of another one in a log locks the table and continues from there, so one
retry is enough. A lost connection is reopened when it is next needed. psycopg is an optional extra.

Must never rerun a batch if it is unknown whether the first attempt was committed: its callers get the error and retry.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

import anyio
import anyio.to_thread
import psycopg
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Engine, LargeBinary, NullPool, Table, create_engine
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from toolcrib.base.settings import Durability
from toolcrib.model.errors import ConfigError
from toolcrib.store.batch import (
    Apart,
    Append,
    Queue,
    Request,
    fail,
    insert_into,
    prepare,
    settle,
    undo,
)
from toolcrib.store.failures import translate_errors, unavailable
from toolcrib.store.postgres_appends import AppendPipeline, RowInsert
from toolcrib.store.schema import stored_text
from toolcrib.store.side_connection import SideConnection, has_input
from toolcrib.store.upgrade import prepare_schema

logger = logging.getLogger(__name__)

Link: TypeAlias = psycopg.AsyncConnection[Any]
Cursor: TypeAlias = psycopg.AsyncCursor[Any]

_READERS = 4
_CONNECT_LIMIT = 5
_STATEMENT_LIMIT = 20
_BATCH_LIMIT = 30
_CLOSE_LIMIT = 10
"""Timeouts in seconds: every wait for the server is bounded."""
_QUIET = 1.0
"""Seconds of inactivity after which a connection is checked before use."""
_SILENT = 5.0
"""Seconds of inactivity after which the check also asks the server, which may have gone without closing it."""
_LONGEST_PAUSE = 2.0
"""Maximum seconds between two attempts to connect."""
_SCHEMA_LOCK = "SELECT pg_advisory_xact_lock(7304126503418263)"  # an arbitrary number, the same in every crib

_READING_EPOCH = " RETURNING (SELECT value FROM epochs WHERE name = 'policy')"

_FAULTS_OF_DATABASE = (psycopg.OperationalError, psycopg.InternalError, psycopg.InterfaceError, OSError, TimeoutError)
"""Errors of the server or the connection; any other error is the fault of a statement or row."""


@asynccontextmanager
async def open_postgres(url: str, durability: Durability) -> AsyncGenerator[tuple[Engine, "PostgresWriter"]]:
    """Connect, migrate the schema, and yield the engine for reading and the writer."""
    parameters = _parameters(url, durability)
    with translate_errors("of PostgreSQL"):
        await anyio.to_thread.run_sync(_prepare, partial(psycopg.connect, **parameters))
    # Without transactions, a read is one exchange with the server instead of three.
    reading = {**parameters, "options": f"{parameters['options']} -c default_transaction_read_only=on"}
    if reading.get("target_session_attrs") == "read-write":
        reading["target_session_attrs"] = "primary"  # the same server, though these sessions do not write
    engine = create_engine(
        "postgresql+psycopg://",
        creator=partial(psycopg.connect, **reading),
        pool_size=_READERS,
        max_overflow=0,
        pool_use_lifo=True,  # the statements that a connection has prepared are those that are used
        isolation_level="AUTOCOMMIT",
    )
    writer = PostgresWriter(parameters)
    pump = asyncio.create_task(writer.pump(), name="toolcrib-postgres")
    try:
        yield engine, writer
    finally:
        with anyio.CancelScope(shield=True):
            writer.close()
            await asyncio.wait([pump], timeout=_CLOSE_LIMIT)
            pump.cancel()
            await anyio.to_thread.run_sync(engine.dispose)


def _parameters(url: str, durability: Durability) -> dict[str, Any]:
    try:
        given = conninfo_to_dict("postgresql:" + url.partition(":")[2])
    except psycopg.ProgrammingError as error:
        raise ConfigError("settings.invalid", "The URL of the PostgreSQL database is invalid.") from error
    options = f"{given.get('options') or ''} -c statement_timeout={_STATEMENT_LIMIT}s"
    if durability == "power":
        options += " -c synchronous_commit=on"
    return {"connect_timeout": _CONNECT_LIMIT, **given, "options": options, "client_encoding": "utf8"}


def _prepare(connect: "partial[psycopg.Connection[Any]]") -> None:
    with create_engine("postgresql+psycopg://", creator=connect, poolclass=NullPool).connect() as connection:
        prepare_schema(connection, lock=_SCHEMA_LOCK, shared=True)


class PostgresWriter(Queue):
    """The single writing connection and the task that serves it."""

    shared = True

    def __init__(self, parameters: dict[str, Any]) -> None:
        super().__init__(PGDialect_psycopg())
        self._parameters = parameters
        self._inserts: dict[tuple[Table, bool | None], RowInsert] = {}
        self._work = asyncio.Event()
        self._link: Link | None = None
        self._pipeline: AppendPipeline | None = None
        self._in_flight: list[Request] = []
        self._failure: Exception | None = None
        self._used = 0.0
        self._pause = 0.0
        self._not_before = 0.0

    def wake(self) -> None:
        """Commit after this turn of the loop, unless a batch is in flight: the next one begins when it ends."""
        if not self._in_flight:
            self.loop.call_soon(self._begin)

    def side_connection(self) -> SideConnection:
        """Return one more connection to the database, not opened yet."""
        return SideConnection(self._parameters)

    def connection_parameters(self) -> Mapping[str, Any]:
        """Return the parameters of the connections."""
        return self._parameters

    def close(self) -> None:
        """Refuse new requests; the task commits the pending ones and ends."""
        self.closed = True
        self._work.set()

    async def pump(self) -> None:
        """Commit the batches that `_begin` leaves to it until closed."""
        try:
            while not self.closed or self.waiting or self._in_flight:
                await self._work.wait()
                self._work.clear()
                if self._failure is None and self._in_flight:
                    continue
                self._in_flight = self._in_flight or self.take()
                if self._in_flight:
                    await self._commit(self._in_flight)
                self._in_flight = []
                self._begin()
        finally:
            left = partial(unavailable, TimeoutError("it did not answer before the crib stopped"))
            fail([*self._in_flight, *self.take()], left)
            await self._disconnect()

    def _begin(self) -> None:
        """Begin to commit the waiting requests. What is not simply an append to a log is left to the task."""
        if self._in_flight or not (self.waiting or self.closed):
            return
        appends = [each for each in self.waiting if isinstance(each, Append)]
        pipeline = self._pipeline if self._is_ready() else None
        if pipeline is None or not appends or len(appends) < len(self.waiting):
            self._work.set()
            return
        self._in_flight = self.take()
        try:
            pipeline.send([self._inserts_of(each) for each in appends])
        except Exception as error:  # noqa: BLE001 boundary: the task handles it
            self._on_appended(None, error)

    def _is_ready(self) -> bool:
        return self._link is not None and not self._link.closed and self.loop.time() - self._used <= _QUIET

    def _on_appended(self, epoch: bytes | None, error: Exception | None) -> None:
        """Take the end of a batch that was sent without the task."""
        if error is not None:
            self._failure = error
            self._work.set()
            return
        batch, self._in_flight = self._in_flight, []
        self._used = self.loop.time()
        if epoch is not None:
            self.policy_epoch = int(epoch)
        settle(batch)
        # After the callers have continued: the outcomes of their calls may be ready, and join the next batch.
        self.loop.call_soon(self._begin)

    async def _commit(self, batch: list[Request]) -> None:
        failure, self._failure = self._failure, None
        try:
            with anyio.fail_after(_BATCH_LIMIT):
                apart = await self._try_together(batch, failure)
        except BaseException as error:  # boundary: no caller may wait forever, whatever went wrong
            undo(batch)
            fail(batch, partial(unavailable, error))
            await self._disconnect()
            if not isinstance(error, Exception):
                raise
            if not isinstance(error, _FAULTS_OF_DATABASE):
                logger.exception("A batch failed in an unexpected way.")
            return
        self._used = self.loop.time()
        if apart is None:
            settle(batch)
        else:
            apart.settle(psycopg.IntegrityError)

    async def _try_together(self, batch: Sequence[Request], failure: Exception | None) -> Apart | None:
        """Commit the batch as a whole; if a request fails, commit its requests separately.

        `failure` is the error of a batch that was already tried as a whole.
        """
        try:
            if failure is not None:
                raise failure
            await self._run_together(await self._connect(), batch)
        except _FAULTS_OF_DATABASE:
            raise
        except Exception:  # noqa: BLE001 boundary: only the caller at fault gets the error
            undo(batch)
            return await self._run_apart(await self._connect(), batch)
        return None

    async def _run_together(self, link: Link, batch: Sequence[Request]) -> None:
        if _is_one_statement(batch):  # without a transaction, it is one message that wakes the server once
            await self._note(batch[0], await self._run(link, batch[0]))
            return
        async with link.pipeline(), link.transaction():
            cursors = [await self._run(link, request) for request in batch]
        for request, used in zip(batch, cursors, strict=True):
            await self._note(request, used)

    async def _run_apart(self, link: Link, batch: Sequence[Request]) -> Apart:
        """Rerun the batch with every request in a savepoint; logs resume from the database."""
        apart = Apart(batch)
        try:
            async with link.transaction():
                for name in sorted({request.log.table.name for request in batch if isinstance(request, Append)}):
                    await link.execute(f"LOCK TABLE {name} IN SHARE ROW EXCLUSIVE MODE".encode())
                for request in apart:
                    try:
                        async with link.transaction():
                            await self._resume(link, request)
                            await self._note(request, await self._run(link, request))
                        apart.kept.append(request)
                    except _FAULTS_OF_DATABASE:
                        raise
                    except Exception as error:  # noqa: BLE001 boundary: the fault of this request alone
                        apart.refuse(request, error)
        except BaseException:
            undo(apart.kept)
            raise
        return apart

    async def _resume(self, link: Link, request: Request) -> None:
        if isinstance(request, Append):
            sql, parameters = prepare(request.log.tail(), self.dialect)
            request.log.resume(await (await link.execute(sql.encode(), parameters)).fetchall())

    async def _run(self, link: Link, request: Request) -> list[Cursor]:
        """Run the statements of a request; in a pipeline, results are only known when it has ended."""
        if isinstance(request, Append):
            cursor = link.cursor()
            insert, rows = self._inserts_of(request)
            if len(rows) == 1:
                await cursor.execute(insert.sql.encode(), rows[0])
            else:
                await cursor.executemany(insert.sql.encode(), rows, returning=request.log.reads_policy_epoch)
            return [cursor]
        cursors: list[Cursor] = []
        for sql, parameters in request.statements:
            cursor = link.cursor()
            if isinstance(parameters, list):
                await cursor.executemany(sql.encode(), parameters)
            else:
                await cursor.execute(sql.encode(), parameters)
            cursors.append(cursor)
        return cursors

    def _inserts_of(self, request: Append) -> tuple[RowInsert, list[tuple[Any, ...]]]:
        """Return the insert of a request and its rows, with the parameters of the fence."""
        log, fence = request.log, request.fence
        kind = log.table, None if fence is None else fence.session is not None
        insert = self._inserts.get(kind)
        if insert is None:
            insert = self._inserts[kind] = _insert(*kind, reads_epoch=log.reads_policy_epoch)
        rows = request.rows()
        if fence is None:
            return insert, rows
        given = (stored_text(fence.crib), fence.run)
        if fence.session is not None:
            given = (*given, stored_text(fence.session), fence.epoch)
        at = insert.fence_at
        return insert, [(*row[:at], *given, *row[at:]) for row in rows]

    async def _note(self, request: Request, cursors: Sequence[Cursor]) -> None:
        """Store the numbers of affected rows, or the epoch that the inserts of a log saw."""
        if not isinstance(request, Append):
            request.counts = tuple(cursor.rowcount for cursor in cursors)
        elif request.log.reads_policy_epoch:
            (cursor,) = cursors
            seen = await cursor.fetchone()
            while cursor.nextset():
                seen = await cursor.fetchone()
            self.policy_epoch = seen[0] if seen is not None else self.policy_epoch

    async def _connect(self) -> Link:
        """Return the connection, reopened if it was lost; back off after a failed attempt."""
        if self._link is not None and self._link.closed:  # the pipeline noticed it while nothing was in flight
            await self._disconnect()
        if self._link is not None:
            try:
                if self._pipeline is not None:
                    self._pipeline.leave()
                if self.loop.time() - self._used > _SILENT or has_input(self._link):
                    await self._link.execute(b"SELECT 1")
            except psycopg.Error:
                await self._disconnect()
        if self._link is None:
            if self.loop.time() < self._not_before:
                raise psycopg.OperationalError("it could not be reached a moment ago")
            self._pause = min(max(2 * self._pause, 0.1), _LONGEST_PAUSE)
            self._not_before = self.loop.time() + self._pause
            self._link = await psycopg.AsyncConnection.connect(**self._parameters, autocommit=True)
            self._pause = self._not_before = 0.0
            self._pipeline = AppendPipeline(self._link, _BATCH_LIMIT, self._on_appended)
        return self._link

    async def _disconnect(self) -> None:
        link, self._link = self._link, None
        if self._pipeline is not None:
            self._pipeline.abandon()
            self._pipeline = None
        if link is not None:
            with contextlib.suppress(psycopg.Error, OSError):
                await link.close()


def _is_one_statement(batch: Sequence[Request]) -> bool:
    return (
        len(batch) == 1
        and not isinstance(batch[0], Append)
        and [isinstance(parameters, list) for _, parameters in batch[0].statements] == [False]
    )


_RUN = "(SELECT {} FROM audit_runs WHERE crib = %s AND run = %s)"
_RUN_OF_SESSION = (
    "(SELECT {} FROM audit_runs WHERE crib = %s AND run = %s"
    " AND EXISTS (SELECT 1 FROM sessions WHERE sessions.id = %s AND epoch = %s FOR SHARE))"
)
"""The value of a column that must not be null: there is none if the fence does not hold any more."""


def _insert(table: Table, of_session: bool | None, *, reads_epoch: bool) -> RowInsert:
    """Return the insert of a row. `of_session`: with the fence of a session, or of the run only, or with none."""
    sql = insert_into(table, PGDialect_psycopg(paramstyle="format"))
    formats, fence_at = [int(isinstance(column.type, LargeBinary)) for column in table.columns], 0
    if of_session is not None:
        start, _, values = sql.partition(" VALUES (")
        places = values.removesuffix(")").split(", ")
        fenced = table.columns.keys().index("hash")
        places[fenced] = (_RUN_OF_SESSION if of_session else _RUN).format(places[fenced])
        sql = f"{start} VALUES ({', '.join(places)})"
        fence_at = fenced + 1
        formats[fence_at:fence_at] = [0] * (4 if of_session else 2)
    return RowInsert(sql + _READING_EPOCH if reads_epoch else sql, tuple(formats), fence_at)
