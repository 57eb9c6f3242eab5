"""Large results that a caller reads on in on any node: in the database, encrypted with the node secret.

A result is stored before its handle is returned. Each node knows the owners of all results, because `read_result` is
listed only for them; a signal and a poll keep that up to date.
"""

import logging
from typing import Final

import anyio

from toolcrib.model.errors import ToolcribError
from toolcrib.model.json import Json, dumps, loads
from toolcrib.nodes.cluster_secret import ClusterSecret
from toolcrib.nodes.signals import Signals
from toolcrib.store.engine import Store
from toolcrib.store.kept_results import load_result, load_result_owners, prune_results, save_result

logger = logging.getLogger(__name__)

MOST_BYTES: Final = 256 * 1_048_576
"""Bytes of the results of all nodes. The oldest ones are dropped first."""
TOPIC: Final = "results"
_POLL_SECONDS: Final = 30.0
_PURPOSE: Final = "results"


class SharedResults:
    """The results of all nodes. `follow` runs as a task."""

    def __init__(self, store: Store, secret: ClusterSecret, signals: Signals) -> None:
        self.owners: set[str] = set()
        """The owners of all results, as they were last loaded."""
        self._store = store
        self._secret = secret
        self._signals = signals
        self._due = anyio.Event()

    async def save(self, handle: str, owner: str, content: Json, seconds: float) -> None:
        """Store a result. If the database does not respond, only this node has it."""
        try:
            sealed = self._secret.seal(_PURPOSE, dumps(content), f"{handle} {owner}")
            await save_result(self._store, handle, owner, sealed, seconds)
        except ToolcribError as error:
            logger.warning("A result can only be read on this node: %s", error)
        self._signals.send(TOPIC)

    async def load(self, handle: str) -> tuple[str, Json, float] | None:
        """Return the owner and content of a result and its remaining seconds, or None. Raises `Unavailable`."""
        found = await load_result(self._store, handle)
        if found is None:
            return None
        owner, sealed, seconds = found
        return owner, loads(self._secret.open(_PURPOSE, sealed, f"{handle} {owner}")), seconds

    async def follow(self) -> None:
        """Keep the owners up to date, and delete expired results, until cancelled."""
        stop = self._signals.listen(lambda topic: self._due.set() if topic == TOPIC else None)
        try:
            while True:
                try:
                    self.owners = await load_result_owners(self._store)
                except ToolcribError as error:
                    logger.info("Could not look for results of other nodes: %s", error)
                with anyio.move_on_after(_POLL_SECONDS) as waiting:
                    await self._due.wait()
                self._due = anyio.Event()
                if waiting.cancelled_caught:
                    await self._prune()
        finally:
            stop()

    async def _prune(self) -> None:
        try:
            await prune_results(self._store, MOST_BYTES)
        except ToolcribError as error:
            logger.info("Could not delete expired results: %s", error)
