"""Leases of servers that run on one node at a time (`placement = "one"`).

A node starts such a server only while it holds the lease, by the clock of the database. The others forward to it. It
renews the lease while the server runs and, if that fails, ends the server before the lease does, so that another node
can start it. The lease is released once the server has ended.

Must never report a lease that may have ended.
"""

import logging
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio.abc import TaskGroup

from toolcrib.model.errors import ToolcribError, Unavailable
from toolcrib.nodes.forwarding import NodeClient
from toolcrib.nodes.membership import steady_seconds
from toolcrib.store.engine import Store
from toolcrib.store.leases import end_lease, lease_holder, take_lease

logger = logging.getLogger(__name__)

SERVER_LEASE_SECONDS: Final = 12.0
GIVE_UP_SECONDS: Final = 6.0
"""Seconds without renewal after which a node ends the server. The rest of the lease is for ending its process."""
_RENEW_SECONDS: Final = 2.0
_PAUSE: Final = 0.3
_WAIT_SECONDS: Final = SERVER_LEASE_SECONDS + 5.0
"""Seconds to wait for a lease whose holder does not respond."""


class ServerLeases:
    """The leases of this node. `tasks` renews them. Without a `client`, this node cannot reach the others."""

    def __init__(
        self,
        store: Store,
        node: str,
        client: NodeClient | None,
        tasks: TaskGroup,
        clock: Callable[[], float] = steady_seconds,
    ) -> None:
        self.client = client
        self._store = store
        self._node = node
        self._tasks = tasks
        self._clock = clock

    @asynccontextmanager
    async def place(self, server: str, on_lost: Callable[[], None]) -> AsyncGenerator[str | None]:
        """Yield None while this node holds the lease of a server, or the node that holds it.

        Calls `on_lost` when the lease could not be renewed: the server must end at once. Raises `node.unreachable` if
        the holder does not respond and its lease does not end.
        """
        name, holder = f"server {server}", f"{self._node} {secrets.token_hex(4)}"
        elsewhere = await self._take(name, holder)
        if elsewhere is not None:
            yield elsewhere
            return
        renewing = anyio.CancelScope()
        self._tasks.start_soon(self._renew, name, holder, self._clock(), renewing, on_lost)
        try:
            yield None
        finally:
            renewing.cancel()
            with anyio.move_on_after(_RENEW_SECONDS, shield=True):
                try:
                    await end_lease(self._store, name, holder)
                except ToolcribError as error:
                    logger.info("The lease of a server ends by itself: %s", error)

    async def _take(self, name: str, holder: str) -> str | None:
        """Take a lease; return the other node that holds it, if that can be reached."""
        with anyio.move_on_after(_WAIT_SECONDS):
            while not await take_lease(self._store, name, holder, SERVER_LEASE_SECONDS):
                if self.client is None:
                    message = "Another node runs this server, and requests to other nodes need a node secret."
                    raise Unavailable("node.unreachable", message, "Start all nodes with `--node-secret-file`.")
                held_by = await lease_holder(self._store, name)
                node = held_by.rpartition(" ")[0] if held_by is not None else self._node
                if await self.client.runs(node):
                    return node
                await anyio.sleep(_PAUSE)
            return None
        raise Unavailable("node.unreachable", "The node that runs this server does not respond.")

    async def _renew(
        self, name: str, holder: str, renewed: float, scope: anyio.CancelScope, on_lost: Callable[[], None]
    ) -> None:
        with scope:
            while True:
                left = renewed + GIVE_UP_SECONDS - self._clock()
                if left <= 0:
                    break
                await anyio.sleep(min(_RENEW_SECONDS, left))
                sent = self._clock()
                try:
                    with anyio.move_on_after(max(0.1, renewed + GIVE_UP_SECONDS - sent)):
                        if not await take_lease(self._store, name, holder, SERVER_LEASE_SECONDS):
                            break
                        renewed = sent
                except ToolcribError as error:
                    logger.warning("The lease of a server could not be renewed: %s", error)
            logger.error("This node lost the lease of a server and ends it.")
            on_lost()
