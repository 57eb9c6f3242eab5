"""One more connection to PostgreSQL, for work that must not wait behind the writer or hold it up.

It is reopened when it is next needed after it was lost. Every transaction is sent as a whole, so that a process that is
suspended meanwhile holds no lock.
"""

import asyncio
import contextlib
import select
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import anyio
import psycopg
from psycopg.pq import ConnStatus

from toolcrib.store.failures import unavailable

_LIMIT: Final = 10.0
"""Seconds that a transaction may take."""
_CHECK_SECONDS: Final = 60.0
"""Seconds without a notification after which the connection is checked."""
_OPTIONS: Final = " -c idle_in_transaction_session_timeout=10s"
_FAULTS: Final = (psycopg.Error, OSError, TimeoutError)

Sql: TypeAlias = tuple[str, Mapping[str, Any]]
Rows: TypeAlias = list[tuple[Any, ...]]


class SideConnection:
    """A connection that runs transactions, or waits for notifications. Must be closed."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._parameters: dict[str, Any] = {**parameters, "options": f"{parameters.get('options') or ''}{_OPTIONS}"}
        self._link: psycopg.AsyncConnection[Any] | None = None
        self._lock = asyncio.Lock()

    async def run(self, statements: Sequence[Sql]) -> list[Rows]:
        """Run statements in one transaction; return the rows of each. Raises `Unavailable`.

        After an error it is unknown whether the transaction was committed.
        """
        async with self._lock:
            try:
                # Shielded, because psycopg cannot leave a pipeline that is cancelled in the middle.
                with anyio.fail_after(_LIMIT, shield=True):
                    return await self._run(await self._connect(), statements)
            except _FAULTS as error:
                await self._disconnect()
                raise unavailable(error) from error

    async def _run(self, link: "psycopg.AsyncConnection[Any]", statements: Sequence[Sql]) -> list[Rows]:
        if len(statements) == 1:
            sql, given = statements[0]
            cursor = await link.execute(sql.encode(), given)
            return [await cursor.fetchall() if cursor.description else []]
        async with link.pipeline(), link.transaction():
            cursors = [await link.execute(sql.encode(), given) for sql, given in statements]
        return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]

    async def notify(self, channel: str, payload: str) -> None:
        """Notify the listeners of a channel, without waiting for the server's disk. Raises `Unavailable`."""
        notification = "SELECT pg_notify(%(channel)s, %(payload)s)", {"channel": channel, "payload": payload}
        await self.run([("SET LOCAL synchronous_commit TO off", {}), notification])

    async def listen(self, channel: str) -> AsyncGenerator[str | None]:
        """Yield the payloads of a channel, and None once at the start. Ends with `Unavailable` if the connection does.

        The connection cannot be used for anything else meanwhile.
        """
        async with self._lock:
            try:
                link = await self._connect()
                await link.execute(f'LISTEN "{channel}"'.encode())
                yield None
                while True:
                    # Not `link.notifies`: it wakes ten times a second without a notification.
                    if not await _readable(link.fileno(), _CHECK_SECONDS):
                        await link.execute(b"SELECT 1")
                    link.pgconn.consume_input()
                    while (notification := link.pgconn.notifies()) is not None:
                        yield notification.extra.decode()
                    if link.pgconn.status != ConnStatus.OK:
                        raise psycopg.OperationalError("the connection was closed")
            except _FAULTS as error:
                raise unavailable(error) from error
            finally:
                await self._disconnect()

    async def aclose(self) -> None:
        """Close the connection."""
        await self._disconnect()

    async def _connect(self) -> "psycopg.AsyncConnection[Any]":
        if self._link is None or self._link.closed:
            self._link = await psycopg.AsyncConnection.connect(**self._parameters, autocommit=True)
        return self._link

    async def _disconnect(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            with anyio.CancelScope(shield=True), contextlib.suppress(psycopg.Error, OSError):
                await link.close()


def has_input(link: "psycopg.AsyncConnection[Any]") -> bool:
    """Return whether the server has sent something unasked, as it does before it closes a connection."""
    looking = select.poll()
    looking.register(link.fileno(), select.POLLIN)
    return bool(looking.poll(0))


async def _readable(socket: int, seconds: float) -> bool:
    """Wait until there is something to read; return False if there is nothing for this many seconds."""
    loop, is_readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(socket, is_readable.set)
    try:
        with anyio.move_on_after(seconds):
            await is_readable.wait()
    finally:
        loop.remove_reader(socket)
    return is_readable.is_set()
