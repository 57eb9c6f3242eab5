"""What a server demands when it rejects a request for want of authorization. Values only."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Challenge:
    """A bearer challenge: error, required scopes and the URL of the server's metadata."""

    error: str | None = None
    scopes: tuple[str, ...] = ()
    resource_metadata: str | None = None


@dataclass(frozen=True, slots=True)
class Demand:
    """What a server required when it rejected a request: more scopes, and the challenge of its last 401."""

    scopes: tuple[str, ...] = ()
    challenge: Challenge = Challenge()


NO_DEMAND = Demand()
