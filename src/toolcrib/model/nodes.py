"""Nodes: the cribs that share one database."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from toolcrib.model.json import JsonObject

LEASE_SECONDS: Final = 10.0
"""Seconds after its last heartbeat in which a node acts for the cluster."""
NodeState = Literal["alive", "draining", "dead"]


@dataclass(frozen=True, slots=True)
class Node:
    """One node. `age` is the number of seconds since its last heartbeat, by the clock of the database.

    `epoch` is unique among all nodes and grows with every start. `load` is the number of calls in flight, `sessions`
    that of sessions with work in progress.
    """

    id: str
    address: str | None
    epoch: int
    version: str
    load: int
    seen_at: datetime
    age: float
    draining: bool
    is_alive: bool
    sessions: int = 0
    lease: float | None = None
    """Seconds until the lease ends without a heartbeat; None for a lease that does not end."""

    @property
    def state(self) -> NodeState:
        """Whether the node works, gives its work away, or sends no heartbeats."""
        if not self.is_alive:
            return "dead"
        return "draining" if self.draining else "alive"

    def to_json(self) -> JsonObject:
        """Return the public shape."""
        return {
            "id": self.id,
            "address": self.address,
            "state": self.state,
            "version": self.version,
            "epoch": self.epoch,
            "load": self.load,
            "sessions": self.sessions,
            "leaseSeconds": None if self.lease is None else round(max(self.lease, 0.0), 1),
            "draining": self.draining,
            "seenAt": self.seen_at.astimezone(UTC).isoformat(timespec="milliseconds"),
        }


def at_seconds(seconds: float) -> datetime:
    """Return the moment that is this many seconds after 1970 began."""
    return datetime.fromtimestamp(seconds, UTC)
