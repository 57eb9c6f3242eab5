"""Makes changes of permissions on other nodes bind at the next call on this one.

The database counts every change of rules, tokens, bundles, projects, agents' permissions and shared files. The
statement that stores the intent of a call also reads that epoch. If it is newer than what this node has loaded, the
gate reloads and decides again before the call leaves. A call that would be refused or asked reads the epoch first, so
that it counts at once if another node allowed it. Between calls, a poll keeps listings up to date.

Must never report an epoch as loaded before everything it counts was loaded.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from toolcrib.model.errors import ToolcribError, Unavailable
from toolcrib.model.principals import Principal
from toolcrib.nodes.membership import Membership
from toolcrib.store.cluster_state import ClusterState
from toolcrib.store.engine import Store
from toolcrib.store.policy_epoch import load_policy_epoch

logger = logging.getLogger(__name__)

POLICY_TOPIC: Final = "policy"
"""The signal that permissions have changed."""


class PolicyEpoch:
    """The epoch that this node has loaded. `revoked` returns a message for a principal that lost its rights.

    A node whose lease has ended is always outdated, and cannot be refreshed.
    """

    def __init__(
        self, store: Store, membership: Membership, revoked: Callable[[Principal], str | None] = lambda _: None
    ) -> None:
        self._store = store
        self._membership = membership
        self.loaded = 0
        """The epoch that this node has loaded. A decision is as old as the value before it was made."""
        self._lock = anyio.Lock()
        self._due = anyio.Event()
        self._reloads: list[Callable[[], Awaitable[None]]] = []
        self._skip_listeners: list[Callable[[], None]] = []
        self.revoked = revoked

    def is_outdated(self, epoch: int) -> bool:
        """Return whether the last stored intent saw changes after this epoch, or the lease has ended.

        The caller passes the epoch of its decision: this node may have loaded a newer one since.
        """
        return self._store.policy_epoch > epoch or self._membership.lost

    def on_change(self, reload: Callable[[], Awaitable[None]], *, first: bool = False) -> None:
        """Call this to load the permissions again after a change on any node; with `first`, before all others."""
        self._reloads.insert(0 if first else len(self._reloads), reload)

    def on_skipped(self, listener: Callable[[], None]) -> None:
        """Call this after several changes were loaded at once: this node did not see the states between them."""
        self._skip_listeners.append(listener)

    def on_poll(self, state: ClusterState) -> None:
        """Load the permissions if they have changed since this node loaded them."""
        if state.policy > self.loaded:
            self._due.set()

    def changed_elsewhere(self) -> None:
        """Look for changes at once: another node reported one."""
        self._due.set()

    async def refresh(self) -> bool:
        """Load everything again if another node changed something; return whether this node has loaded it meanwhile.

        Raises `Unavailable` without the database, and `node.lost` without a lease.
        """
        if not self._store.shared:
            return False
        if self._membership.lost:
            raise Unavailable("node.lost", "This node lost its lease, so it makes no calls.")
        before = self.loaded
        async with self._lock:
            epoch = await load_policy_epoch(self._store)
            if epoch > self.loaded:
                for reload in self._reloads:
                    await reload()
                skipped, self.loaded = epoch - self.loaded > 1, epoch
                for listener in self._skip_listeners if skipped else ():
                    listener()
            return self.loaded != before

    async def follow(self) -> None:
        """Load what signals and the poll report as changed, until cancelled."""
        while self._store.shared:
            await self._due.wait()
            self._due = anyio.Event()
            try:
                await self.refresh()
            except ToolcribError as error:  # calls are refused without the database, whatever is loaded
                logger.warning("Could not look for changed permissions: %s", error)
            except Exception:  # boundary: the permissions in force stay, and the next attempt may succeed
                logger.exception("Could not load changed permissions.")
