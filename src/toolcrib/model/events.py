"""Events of the host: what `/api/events` carries and what parts tell each other after the fact."""

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
    """One numbered entry of a feed. `seq` rises by one; `at` is ISO 8601 in UTC."""

    seq: int
    at: str
    kind: str
    data: JsonObject

    def to_json(self) -> JsonObject:
        """The public shape: envelope and data side by side."""
        return {**self.data, "seq": self.seq, "at": self.at, "kind": self.kind}
