"""Accepts connections at a pace the process can afford.

asyncio's own server accepts everything in the queue until it fails with `EMFILE`, which resets every client. The
`Acceptor` takes a few connections per loop iteration. At capacity, each new connection replaces a less important one.
The rest stay in the kernel's backlog.

Must never use the last file descriptors of the process: `SPARE` of them stay free for databases, logs and servers.
"""

import asyncio
import errno
import logging
import resource
import socket
import ssl
from collections.abc import Callable

from toolcrib.web.connections import Connections

PER_TURN = 16
"""Connections accepted per loop iteration."""
SPARE = 16
"""File descriptors reserved for other uses, capped at a quarter of the limit."""
ENOUGH = 8_192
"""Upper bound for the file descriptor limit; more descriptors are not useful here."""
_PAUSE = 0.05
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

logger = logging.getLogger(__name__)


def raise_file_limit() -> None:
    """Raise the soft limit of open files to what the system allows, up to `ENOUGH`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            logger.warning("Could not raise the limit of open files from %d to %d: %s", soft, wanted, error)


def file_limit() -> int | None:
    """Return the soft limit of open files, or None if it is unlimited."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def affordable(connections: int, in_use: int) -> int:
    """Return how many of these connections the process can afford: at most half of the remaining file descriptors."""
    files = file_limit()
    return connections if files is None else max(min(connections, (files - in_use) // 2), 1)


class Acceptor:
    """Accepts connections on one listening socket until closed. uvicorn uses it as an `asyncio.Server`."""

    def __init__(
        self,
        listener: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        connections: Connections,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._tls = tls
        self._listener = listener
        self._protocol = protocol
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._arriving: set[asyncio.Task[object]] = set()
        self._resume: asyncio.TimerHandle | None = None
        self._is_closed = False
        files = file_limit()
        self._scarce_from = None if files is None else files - min(SPARE, files // 4)
        # Closing a connection takes one loop iteration, so a small capacity needs small batches.
        self._per_turn = max(min(PER_TURN, connections.capacity // 8), 1)
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        """Stop accepting connections. Connections that are still being set up are closed afterwards."""
        self._is_closed = True
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self._listener)

    async def wait_closed(self) -> None:
        """Wait for accepted connections that are still being set up."""
        if self._arriving:
            await asyncio.wait(self._arriving)

    def _accept(self) -> None:
        for _ in range(self._per_turn):
            if len(self._connections) + len(self._arriving) >= self._connections.capacity:
                self._connections.shed_one()
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                self._on_failure(error)
                return
            connection.setblocking(False)
            if self._scarce_from is not None and connection.fileno() >= self._scarce_from:
                # The kernel assigns the lowest free descriptor, so a high number means that few are left.
                self._connections.shed_one()
            self._set_up(connection)

    def _set_up(self, connection: socket.socket) -> None:
        task: asyncio.Task[object] = self._loop.create_task(self._connect(connection))
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)

    async def _connect(self, connection: socket.socket) -> None:
        try:
            transport, _ = await self._loop.connect_accepted_socket(self._protocol, connection, ssl=self._tls)
        except OSError as error:
            logger.info("Connection closed during setup: %s", error)
            connection.close()
            return
        if self._is_closed:
            transport.close()  # the server has already closed its connections and does not know this one

    def _on_failure(self, error: OSError) -> None:
        """Pause accepting, after shedding a connection if descriptors ran out; the client stays in the backlog."""
        if error.errno in _EXHAUSTED:
            logger.warning("Out of file descriptors; closing a less important connection.")
            self._connections.shed_one()
        else:
            logger.warning("Could not accept a connection: %s", error)
        self._loop.remove_reader(self._listener)
        self._resume = self._loop.call_later(_PAUSE, self._loop.add_reader, self._listener, self._accept)
