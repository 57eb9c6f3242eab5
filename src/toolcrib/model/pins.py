"""Pinned definitions: what a tool of an upstream server said of itself when it was first seen or last accepted."""

from dataclasses import dataclass
from datetime import datetime

from toolcrib.model.json import JsonObject


@dataclass(frozen=True, slots=True)
class Held:
    """A definition that differs from the pinned one and is kept back; `rejected_by` once a person said no to it."""

    hash: str
    definition: JsonObject
    since: datetime
    rejected_by: str | None = None


@dataclass(frozen=True, slots=True)
class Pin:
    """The definition that counts for one tool. `server` is the server's identity, which a new name does not change.

    `accepted_by` is the person who agreed to it; None where it is merely the first that was seen.
    """

    server: str
    tool: str
    hash: str
    definition: JsonObject
    pinned_at: datetime
    accepted_by: str | None = None
    held: Held | None = None
