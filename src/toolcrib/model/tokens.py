"""Named tokens: credentials issued by the owner, each bound to a source, mode and agent."""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Mode, Principal, Source

PREFIX = "tcb_"
"""Prefix of every token's secret, so that secret scanners can recognise it."""


Level = Literal["ask", "app"]
"""Access level of an app: `ask` runs read-only tools and asks for all others, `app` leaves asking to the app."""


@dataclass(frozen=True, slots=True)
class Token:
    """A named token. `digest` is the SHA-256 of its secret, which is not stored.

    `may_approve` allows it to answer approvals `once`; `may_remember` also for a session and permanently. `level` is
    None if the owner was never asked for one.
    """

    name: str
    digest: bytes
    source: Source
    mode: Mode
    created_at: datetime
    agent: str | None = None
    may_approve: bool = False
    revoked_at: datetime | None = None
    may_remember: bool = False
    level: Level | None = None

    @property
    def id(self) -> str:
        """Identifies this token, also against a later one of the same name. Reveals nothing about the secret."""
        return hashlib.sha256(self.digest).hexdigest()[:32]

    @property
    def principal(self) -> Principal:
        """The principal of requests with this token."""
        return Principal("token", self.name, self.source, self.mode, self.agent, token_id=self.id)

    def to_json(self) -> JsonObject:
        """Return the public shape, without absent fields and the digest."""
        shape: JsonObject = {
            "name": self.name,
            "id": self.id,
            "source": self.source,
            "mode": self.mode,
            "mayApprove": self.may_approve,
            "mayRemember": self.may_remember,
            "createdAt": self.created_at.isoformat(timespec="milliseconds"),
        }
        if self.agent is not None:
            shape["agent"] = self.agent
        if self.level is not None:
            shape["level"] = self.level
        if self.revoked_at is not None:
            shape["revokedAt"] = self.revoked_at.isoformat(timespec="milliseconds")
        return shape
