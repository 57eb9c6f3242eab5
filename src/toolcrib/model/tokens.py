"""Named tokens: credentials that the owner hands out, each bound to what it may be used for."""

from dataclasses import dataclass
from datetime import datetime

from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Mode, Principal, Source

PREFIX = "tcb_"
"""What the secret of every named token begins with, so that it is known for one wherever it turns up."""


@dataclass(frozen=True, slots=True)
class Token:
    """What is known of a token; its secret is with whoever it was made for. `digest` is the SHA-256 of the secret."""

    name: str
    digest: bytes
    source: Source
    mode: Mode
    created_at: datetime
    agent: str | None = None
    may_approve: bool = False
    revoked_at: datetime | None = None

    @property
    def principal(self) -> Principal:
        """Who asks with this token."""
        return Principal("token", self.name, self.source, self.mode, self.agent)

    def to_json(self) -> JsonObject:
        """The public shape; absent parts are left out, and so is everything about the secret."""
        shape: JsonObject = {
            "name": self.name,
            "source": self.source,
            "mode": self.mode,
            "mayApprove": self.may_approve,
            "createdAt": self.created_at.isoformat(timespec="milliseconds"),
        }
        if self.agent is not None:
            shape["agent"] = self.agent
        if self.revoked_at is not None:
            shape["revokedAt"] = self.revoked_at.isoformat(timespec="milliseconds")
        return shape
