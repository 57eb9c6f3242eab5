"""The one way into the database: read in threads, write through the queue of the one writer.

Above: whoever keeps something. Below: `sqlite` and `postgres`. It must never let two connections write: the order in
which things were asked for is the order in which they are kept.
"""

import asyncio
import importlib
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from sqlalchemy import Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError

from toolcrib.errors import ConfigError, Unavailable
from toolcrib.settings import Durability
from toolcrib.store.batch import Item, Journalled, Log, Queue, Statement
from toolcrib.store.failures import translated
from toolcrib.store.sqlite import open_sqlite

T = TypeVar("T")
_READS_AT_ONCE = 4


class Store:
    """An open database. Everything is called on the event loop that opened it."""

    def __init__(self, engine: Engine, writer: Queue) -> None:
        self._engine = engine
        self._writer = writer
        self._limit = anyio.CapacityLimiter(_READS_AT_ONCE)

    @property
    def shared(self) -> bool:
        """Whether other cribs may use this database too."""
        return self._writer.shared

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a thread, with a connection that cannot write but sees all that was written before."""
        self._writer.catch_up()
        return await anyio.to_thread.run_sync(self._read, work, limiter=self._limit)

    def read_now(self, work: Callable[[Connection], T]) -> T:
        """The same at once, for a caller that cannot wait: blocks the event loop for as long as it takes."""
        self._writer.catch_up()
        return self._read(work)

    def _read(self, work: Callable[[Connection], T]) -> T:
        with translated(), self._engine.connect() as connection:
            return work(connection)

    async def write(self, *statements: Statement) -> tuple[int, ...]:
        """Run statements in one transaction; gives the number of rows each touched, once that is durable.

        Raises `ConstraintError` where one breaks a constraint and `Unavailable` where the database cannot be written;
        then nothing of them was kept.
        """
        return await self._writer.write(statements)

    def append_now(self, log: Log[Item], item: Item) -> int | None:
        """Add an item to a log if that can be made durable at once; None where it can only be waited for."""
        return self._writer.append_now(log, item)

    def append(self, log: Log[Item], item: Item) -> "asyncio.Future[int]":
        """Add an item to a log; the future gives the number of its row once that is durable.

        The item is added even if nobody waits for the future.
        """
        return self._writer.append(log, item)

    async def caught_up(self) -> None:
        """Wait until all that is durable is in the database; raises `Unavailable` if it cannot be written now."""
        if not self._writer.catch_up():
            await self._writer.write(())

    def journalled(self) -> list[bytes]:
        """The lines that a journal was left with when the database was opened, also old and torn ones."""
        return self._writer.journalled()

    def journal(self, log: Journalled[Any] | None) -> None:
        """From now on write the rows of this log to the journal first, if the database has one; None ends that.

        Whatever is needed of the lines that were left must be in the database by now.
        """
        self._writer.journal(log)


@asynccontextmanager
async def open_store(url: str, *, durability: Durability = "process", alone: bool = False) -> AsyncGenerator[Store]:
    """Open the database at `sqlite:///relative`, `sqlite:////absolute` or `postgresql://…`.

    What is durable survives a crash of this process, and of the whole machine with `power`. Whoever opens it `alone`
    sees to it that no other crib does so meanwhile.
    """
    async with _open(url, durability, alone) as (engine, writer):
        yield Store(engine, writer)


def _open(url: str, durability: Durability, alone: bool) -> AbstractAsyncContextManager[tuple[Engine, Queue]]:
    try:
        parts = make_url(url)
    except ArgumentError as error:
        raise ConfigError("settings.invalid", "The database address cannot be read.") from error
    kind = parts.drivername.partition("+")[0]
    if kind == "sqlite" and parts.database:
        return open_sqlite(Path(parts.database).absolute(), durability, alone)
    if kind in ("postgresql", "postgres"):
        return _open_postgres(url, durability)
    raise ConfigError("settings.invalid", f"A database of the kind {parts.drivername!r} is not supported.")


def _open_postgres(url: str, durability: Durability) -> AbstractAsyncContextManager[tuple[Engine, Queue]]:
    try:
        module = importlib.import_module("toolcrib.store.postgres")
    except ModuleNotFoundError as error:
        message = "PostgreSQL needs a part of Toolcrib that is not installed."
        raise Unavailable("database.unavailable", message, "pip install 'toolcrib[postgres]'") from error
    return module.open_postgres(url, durability)
