"""The nodes that share a database, and the lease of this one.

A node renews its lease every two seconds, by the clock of the database. After ten seconds without renewal the lease has
ended: other nodes take over its work, and it must stop. Its own measure starts before the renewal is sent, so that it
stops no later than the others take over, also after it was suspended. A node that reaches the database again gets a new
lease with a higher epoch.

A crib that has the database for itself is its only node: its lease does not end, and it sends no heartbeats.

Must never report a lease that may have ended.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, Self

import anyio

from toolcrib.model.errors import NotFound, ToolcribError
from toolcrib.model.nodes import LEASE_SECONDS, Node
from toolcrib.model.version import __version__
from toolcrib.store.cluster_state import ClusterState
from toolcrib.store.engine import Store
from toolcrib.store.nodes import Heartbeat, beat, count_sessions, join, leave, load_nodes, mark_draining

logger = logging.getLogger(__name__)

BEAT_SECONDS: Final = 2.0
_LEAVE_SECONDS: Final = 2.0
"""Seconds to wait for the database when the node leaves."""

Listener = Callable[[], None]


def steady_seconds() -> float:
    """Return seconds of a clock that also advances while the machine sleeps, where the system has one."""
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)
    return time.clock_gettime(boot_time) if boot_time is not None else time.monotonic()


class Membership:
    """This node among all nodes. Use as `async with`; `follow` renews the lease and runs as a task.

    `load` returns the number of calls in flight.
    """

    def __init__(
        self, store: Store, id: str, *, load: Callable[[], int] = lambda: 0, clock: Callable[[], float] = steady_seconds
    ) -> None:
        self.id = id
        self.epoch = 0
        """The epoch of the current lease. A new lease has a higher one."""
        self.draining = False
        """Whether this node gives its work away and takes none."""
        self.load = load
        self.worker: Callable[[], int | None] = lambda: None
        """Returns the worker of the job queue whose heartbeat is that of this node."""
        self.before_new_lease: Callable[[], Awaitable[None]] = _nothing
        """Called before a new lease counts, after the previous one had ended. If it fails, the node stays lost."""
        self._store = store
        self._clock = clock
        self._address: str | None = None
        self._renewed = 0.0
        self._due = anyio.Event()
        self._is_lost = False
        self._lost_listeners: list[Listener] = []
        self._regained_listeners: list[Listener] = []
        self._draining_listeners: list[Listener] = []

    async def __aenter__(self) -> Self:
        await self._join()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._store.shared and not self.lost:
            with anyio.move_on_after(_LEAVE_SECONDS, shield=True):
                try:
                    await leave(self._store, self.id, self.epoch)
                except ToolcribError as error:
                    logger.warning("This node could not sign off: %s It is listed as dead instead.", error)

    @property
    def lost(self) -> bool:
        """Whether the lease of this node has ended, or may have."""
        return self._store.shared and (self._is_lost or self._clock() - self._renewed >= LEASE_SECONDS)

    @property
    def address(self) -> str | None:
        """The URL at which other nodes reach this one; None while it does not listen."""
        return self._address

    def announce(self, address: str) -> None:
        """Publish the URL at which other nodes reach this one."""
        self._address = address
        self._due.set()

    def on_lost(self, listener: Listener) -> None:
        """Call this when the lease ends: stop everything that acts for the cluster."""
        self._lost_listeners.append(listener)

    def on_regained(self, listener: Listener) -> None:
        """Call this when a new lease begins after the previous one ended."""
        self._regained_listeners.append(listener)

    def on_draining(self, listener: Listener) -> None:
        """Call this once when the node is asked to give its work away."""
        self._draining_listeners.append(listener)

    async def all(self) -> list[Node]:
        """Return all nodes, including dead ones, in order of their starts."""
        return await load_nodes(self._store, LEASE_SECONDS if self._store.shared else float("inf"))

    async def alive(self) -> list[Node]:
        """Return the nodes whose leases have not ended, including this one."""
        return [node for node in await self.all() if node.is_alive]

    async def address_of(self, id: str) -> str | None:
        """Return the URL of a node; None if it is unknown, dead or does not listen."""
        return (await self.reach(id))[0]

    async def reach(self, id: str) -> tuple[str | None, int]:
        """Return the URL of a node and the epoch of its lease; no URL if it is unknown, dead or does not listen."""
        return next(((node.address, node.epoch) for node in await self.alive() if node.id == id), (None, 0))

    async def described(self) -> list[Node]:
        """Return all nodes with the number of their sessions."""
        sessions = await count_sessions(self._store)
        return [replace(node, sessions=sessions.get(node.id, 0)) for node in await self.all()]

    async def find(self, name: str) -> Node:
        """Return the node with this id, address, or beginning of its id. Raises `node.unknown`."""
        nodes = await self.described()
        exact = [node for node in nodes if name in (node.id, node.address, (node.address or "").partition("://")[2])]
        found = exact or [node for node in nodes if node.id.startswith(name)]
        if len(found) != 1:
            raise NotFound("node.unknown", f"There is no single node named {name!r}.")
        return found[0]

    async def drain(self, name: str) -> Node:
        """Ask a node to give its work away and stop. Raises `node.unknown`."""
        node = await self.find(name)
        await mark_draining(self._store, node.id)
        self._due.set()
        return replace(node, draining=True)

    async def follow(self) -> None:
        """Renew the lease until cancelled, and notice its end even while the database does not respond."""
        if not self._store.shared:
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch)
            while True:
                with anyio.move_on_after(BEAT_SECONDS):
                    await self._due.wait()
                self._due = anyio.Event()
                await self.renew()

    def on_poll(self, state: ClusterState) -> None:
        """Notice that this node was asked to give its work away."""
        if self.id in state.draining and not self.draining:
            self.draining = True
            _call(self._draining_listeners)

    async def renew(self) -> None:
        """Send one heartbeat. A lease that had ended is replaced by a new one."""
        sent = self._clock()
        try:
            heartbeat = Heartbeat(self.id, self.epoch, self._address, self.load())
            if not self.lost and await beat(self._store, heartbeat, LEASE_SECONDS, self.worker()):
                self._renewed = sent
            else:
                self._lose()
                await self._join()
                await self.before_new_lease()
                self._regain()
        except ToolcribError as error:
            logger.warning("The lease of this node could not be renewed: %s", error)

    async def _watch(self) -> None:
        """Notice the end of the lease while a heartbeat waits for the database."""
        while True:
            await anyio.sleep(max(0.05, self._renewed + LEASE_SECONDS - self._clock()) if not self._is_lost else 0.5)
            if self.lost:
                self._lose()

    async def _join(self) -> None:
        sent = self._clock()
        self.epoch = await join(
            self._store, self.id, version=__version__, address=self._address, draining=self.draining
        )
        self._renewed = sent

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            logger.error("The lease of this node has ended: it lost the database or was suspended.")
            _call(self._lost_listeners)

    def _regain(self) -> None:
        self._is_lost = False
        logger.warning("This node has a new lease (epoch %d).", self.epoch)
        _call(self._regained_listeners)


async def _nothing() -> None:
    """Do nothing before a new lease."""


def _call(listeners: list[Listener]) -> None:
    for listener in listeners:
        try:
            listener()
        except Exception:  # boundary: the other listeners must stop their work too
            logger.exception("A part of the crib could not handle a change of this node's lease.")
