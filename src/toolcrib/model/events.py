"""Events of the host: published on `/api/events` and consumed by other components."""

from dataclasses import dataclass
from typing import Literal, get_args

from toolcrib.model.json import JsonObject

HostEventKind = Literal[
    "server_changed", "catalog_changed", "approval_required", "approval_resolved", "session_changed", "agent_changed",
    "config_changed", "notice",
]  # fmt: skip
HOST_EVENT_KINDS: tuple[HostEventKind, ...] = get_args(HostEventKind)


@dataclass(frozen=True, slots=True)
class Event:
    """One numbered event of a feed. `seq` increases by one; `at` is ISO 8601 in UTC."""

    seq: int
    at: str
    kind: str
    data: JsonObject

    def to_json(self) -> JsonObject:
        """Return the public shape: envelope and data merged."""
        return {**self.data, "seq": self.seq, "at": self.at, "kind": self.kind}
