"""The public interface of the database: reads in threads, writes through the queue of the single writer.

Must never let two connections write: requests are stored in the order they were made.
"""

import asyncio
import importlib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread
from sqlalchemy import Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from toolcrib.base.settings import Durability
from toolcrib.model.errors import ConfigError, Unavailable
from toolcrib.store.batch import Fence, Item, Journalled, Log, OnFailure, Queue, Statement
from toolcrib.store.failures import translate_errors
from toolcrib.store.sqlite import open_sqlite

if TYPE_CHECKING:
    from toolcrib.store.side_connection import SideConnection

T = TypeVar("T")
_READS_AT_ONCE = 4


class Store:
    """An open database. Must only be used on the event loop that opened it."""

    def __init__(self, engine: Engine, writer: Queue) -> None:
        self._engine = engine
        self._writer = writer
        self._limit = anyio.CapacityLimiter(_READS_AT_ONCE)
        self.append_now = writer.append_now
        """Appends an item to a log if it can be made durable immediately; returns None if the caller has to wait."""

    @property
    def shared(self) -> bool:
        """Whether other cribs may use this database too."""
        return self._writer.shared

    @property
    def policy_epoch(self) -> int:
        """The epoch of the permissions that the last insert into the audit log saw; 0 on a database of one crib."""
        return self._writer.policy_epoch

    def side_connection(self) -> "SideConnection":
        """Return one more connection to a shared database, opened when it is first used. The caller closes it."""
        return self._writer.side_connection()

    def connection_parameters(self) -> Mapping[str, Any]:
        """Return the parameters of psycopg for connections to a shared database; empty for SQLite."""
        return self._writer.connection_parameters()

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a thread, with a read-only connection that sees all previous writes."""
        self._writer.catch_up()
        return await anyio.to_thread.run_sync(self._read, work, limiter=self._limit)

    def read_now(self, work: Callable[[Connection], T]) -> T:
        """Like `read`, but synchronous: blocks the event loop."""
        self._writer.catch_up()
        return self._read(work)

    def _read(self, work: Callable[[Connection], T]) -> T:
        with translate_errors():
            try:
                return self._read_once(work)
            except DBAPIError as error:
                if not error.connection_invalidated:
                    raise
            return self._read_once(work)  # the server closed the connection while it was idle

    def _read_once(self, work: Callable[[Connection], T]) -> T:
        with self._engine.connect() as connection:
            return work(connection)

    async def write(self, *statements: Statement) -> tuple[int, ...]:
        """Run statements in one transaction; return the number of rows each affected, once durable.

        Raises `ConstraintError` for a violated constraint and `Unavailable` if the database cannot be written; then
        nothing is stored.
        """
        return await self._writer.write(statements)

    def append(
        self, log: Log[Item], item: Item, fence: Fence | None = None, on_failure: OnFailure | None = None
    ) -> "asyncio.Future[int]":
        """Append an item to a log; the future resolves to the number of its row once that is durable.

        The item is appended even if the future is cancelled or not awaited; `on_failure` is called if that fails. The
        future fails with `ConstraintError` if the database is shared and the fence no longer holds.
        """
        return self._writer.append(log, item, fence, on_failure)

    async def caught_up(self) -> None:
        """Wait until everything durable is in the database. Raises `Unavailable` if it cannot be written."""
        if not self._writer.catch_up():
            await self._writer.write(())

    def journal_lines(self) -> list[bytes]:
        """Return the lines found in the journal when the database was opened, including old and torn ones."""
        return self._writer.journalled()

    def journal_found(self) -> str | None:
        """Return the id of the journal found when the database was opened; None if there was none."""
        return self._writer.journal_found()

    @property
    def has_journal(self) -> bool:
        """Whether a journal is read, used or not."""
        return self._writer.has_journal

    def forget_journal(self) -> None:
        """Mark the id of the journal as no longer referenced."""
        self._writer.forget_journal()

    def journal(self, log: Journalled[Any] | None, id: str = "") -> bool:
        """Write the rows of this log to a journal of this id first, if the database has one; None stops that.

        The lines found in the journal must be in the database by now. Returns whether a journal is used or, when
        stopping, whether all of it is in the database.
        """
        return self._writer.journal(log, id)


@asynccontextmanager
async def open_store(url: str, *, durability: Durability = "process", alone: bool = False) -> AsyncGenerator[Store]:
    """Open the database at `sqlite:///relative`, `sqlite:////absolute` or `postgresql://…`.

    Durable data survives a crash of this process and, with `power`, of the whole machine. A caller that passes `alone`
    must ensure that no other crib opens the database.
    """
    async with _open(url, durability, alone) as (engine, writer):
        yield Store(engine, writer)


def sqlite_file(url: str) -> Path | None:
    """Return the file of a SQLite database, or None for PostgreSQL. Raises `settings.invalid` for any other URL."""
    if url.partition(":")[0].partition("+")[0] in ("postgresql", "postgres"):
        return None  # psycopg parses the rest: it may name several hosts
    try:
        parts = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise ConfigError("settings.invalid", "The database URL is invalid.") from error
    if parts.get_backend_name() == "sqlite" and parts.database:
        return Path(parts.database).absolute()
    raise ConfigError("settings.invalid", f"Databases of type {parts.drivername!r} are not supported.")


def _open(url: str, durability: Durability, alone: bool) -> AbstractAsyncContextManager[tuple[Engine, Queue]]:
    file = sqlite_file(url)
    return _open_postgres(url, durability) if file is None else open_sqlite(file, durability, alone)


def _open_postgres(url: str, durability: Durability) -> AbstractAsyncContextManager[tuple[Engine, Queue]]:
    try:
        module = importlib.import_module("toolcrib.store.postgres")
    except ModuleNotFoundError as error:
        message = "PostgreSQL support is not installed."
        raise Unavailable("database.unavailable", message, "pip install 'toolcrib[postgres]'") from error
    return module.open_postgres(url, durability)
