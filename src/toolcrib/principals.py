"""Who asks: turns a credential into a principal, and makes the principals the owner may act as.

The owner has one token, kept in the home. Above: the guard authenticates every request here. Below: `model`.
It must never compare a secret in a way that tells by its time how much of it was right.
"""

import hashlib
import hmac
from typing import Literal

from toolcrib.model.principals import Mode, Principal, Source

Door = Literal["mcp", "api", "cli", "console", "library"]
"""Where a call came in."""


class Principals:
    """Knows the credentials of this crib."""

    def __init__(self, owner_token: str) -> None:
        self._owner = hashlib.sha256(owner_token.encode()).digest()

    def is_owner_token(self, token: bytes) -> bool:
        """Whether this is the owner's token."""
        return hmac.compare_digest(hashlib.sha256(token).digest(), self._owner)

    def owner(
        self,
        source: Source,
        *,
        mode: Mode | None = None,
        agent: str | None = None,
        session: str | None = None,
        cwd: str | None = None,
    ) -> Principal:
        """The owner, asking from somewhere; naming an agent, a session or a mode means to act as that.

        An MCP client asks its own user before it calls, so `ide` runs unasked unless a mode is named. A call that the
        owner makes in no other name is made by hand.
        """
        by_hand = source in ("web", "cli", "api") and mode is None and agent is None and session is None
        effective: Mode = mode or ("acceptEdits" if source == "ide" else "default")
        return Principal("owner", "owner", source, effective, agent, session, cwd, by_hand)
