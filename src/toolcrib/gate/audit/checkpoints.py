"""Checkpoints: chained records that name the newest record of every lane.

One node at a time writes them, every second while records are written anywhere. They fix the order of the lanes, and
make it detectable that records of another node were cut off, or its whole lane removed. Every node keeps the newest
checkpoint outside the database, in `audit.checkpoint` beside `audit.head`.

Must never name a record that is not committed.
"""

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import anyio
from sqlalchemy import Connection

from toolcrib.gate.audit.chain import Chain, columns_of, stored
from toolcrib.gate.audit.head import ChainHead, HeadFile, beginning, read_head
from toolcrib.model.errors import Unavailable
from toolcrib.model.json import JsonObject, as_list, dumps
from toolcrib.nodes.signals import Signals
from toolcrib.store.audit import CHECKPOINT, moment
from toolcrib.store.audit_lanes import CHECKPOINT_LANE, CHECKPOINT_LEASE, all_heads, lane_heads, lane_of
from toolcrib.store.cluster_state import ClusterState
from toolcrib.store.engine import Store
from toolcrib.store.leases import take_lease

ALL_LANES: Final = "all lanes"
"""The column `tool` of a checkpoint that names every lane."""
_WHOLE_SECONDS: Final = 3600.0
"""Seconds after which a checkpoint names every lane again, also those that have not grown."""
_LEASE_SECONDS: Final = 6.0
_RENEW_SECONDS: Final = 2.0

logger = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of a shared database. `follow` runs as a task."""

    def __init__(self, store: Store, path: Path, node: str) -> None:
        self._store = store
        self._path = path
        self._node = node
        self._chain: Chain | None = None
        self._named: dict[int, ChainHead] = {}
        self._whole_at = 0.0
        self._renew_at = 0.0
        self.newest: ChainHead | None = None
        """The newest checkpoint that this node has seen; None if it has seen none."""

    async def follow(self, signals: Signals) -> None:
        """Write checkpoints while it is this node's turn, and remember those of others, until cancelled."""
        polled = anyio.Event()
        state: ClusterState | None = None

        def look(current: ClusterState) -> None:
            nonlocal state
            state = current
            polled.set()

        stop = signals.on_poll(look)
        file = HeadFile(self._path)
        content = read_head(self._path)
        self.newest = content.head if content is not None else None
        try:
            while True:
                await polled.wait()
                polled = anyio.Event()
                try:
                    if state is not None:
                        await self._step(file, state)
                except Unavailable as error:
                    logger.debug("No checkpoint could be written: %s", error)
                except Exception:  # boundary: the next attempt may succeed
                    logger.exception("Could not write a checkpoint of the audit log.")
        finally:
            stop()
            file.close()

    async def _step(self, file: HeadFile, state: ClusterState) -> None:
        if state.checkpoint_writer in (None, self._node) and await self._has_lease(state):
            await self.write(file)
            return
        self._chain = None
        if state.checkpoint == (self.newest.number if self.newest is not None else None):
            return
        newest = await self._store.read(_newest)
        if newest is not None and newest != self.newest:
            self.newest = newest
            file.write(newest)

    async def _has_lease(self, state: ClusterState) -> bool:
        if state.checkpoint_writer == self._node and anyio.current_time() < self._renew_at:
            return True
        renew_at = anyio.current_time() + _RENEW_SECONDS
        is_taken = await take_lease(self._store, CHECKPOINT_LEASE, self._node, _LEASE_SECONDS)
        self._renew_at = renew_at if is_taken else 0.0
        return is_taken

    async def write(self, file: HeadFile) -> int | None:
        """Write a checkpoint if any lane has grown; return its number."""
        if self._chain is None:  # this node's turn begins: continue, and name every lane once
            newest = await self._store.read(_newest)
            self._chain, self._named = Chain(file, newest or beginning(CHECKPOINT_LANE)), {}
        heads = [ChainHead(*row) for row in await self._store.read(all_heads)]
        grown = [head for head in heads if self._named.get(lane_of(head.number)) != head]
        if not grown:
            return None
        is_whole = not self._named or anyio.current_time() - self._whole_at >= _WHOLE_SECONDS
        number = await self._store.append(self._chain, _entry(heads if is_whole else grown, is_whole=is_whole))
        self._whole_at = anyio.current_time() if is_whole else self._whole_at
        self._named |= {lane_of(head.number): head for head in grown}
        self.newest = self._chain.durable
        return number


def _entry(heads: list[ChainHead], *, is_whole: bool) -> tuple[bytes, tuple[str | None, ...]]:
    body: JsonObject = {
        "at": moment(datetime.now(UTC)),
        "phase": CHECKPOINT,
        "heads": [{"lane": lane_of(head.number), "id": head.number, "hash": head.hash} for head in heads],
    }
    if is_whole:
        body["tool"] = ALL_LANES
    return dumps(body)[1:-1], stored(columns_of(body))


def heads_in(record: JsonObject) -> list[ChainHead]:
    """Return the positions that a checkpoint names."""
    listed = as_list(record.get("heads")) or []
    found: list[ChainHead] = []
    for each in listed:
        match each:
            case {"id": int(number), "hash": str(digest)}:
                found.append(ChainHead(number, digest))
            case _:
                pass
    return found


def _newest(connection: Connection) -> ChainHead | None:
    heads = lane_heads(connection, [CHECKPOINT_LANE])
    return ChainHead(*heads[0]) if heads else None
