"""Tracks the open connections of one listener and picks the one to close when there are too many.

A connection has no principal until one of its requests is authenticated. Any local process can open such connections,
so they are closed first, oldest first. Each named token is limited to a share of the capacity, and all named tokens
together leave a reserve for the owner. Neither an unauthenticated client nor a token can lock the owner out.

Must never close a connection of one principal because another opened too many, while the other has an idle connection.
"""

from collections.abc import Iterable
from typing import Protocol

from toolcrib.gate.principals import OWNER_KEY

RESERVED = 8
"""The owner's reserve is the capacity divided by this."""
SHARE = 4
"""The share of a named token is the capacity divided by this."""


class Closable(Protocol):
    """The part of a connection that `Connections` needs."""

    @property
    def is_busy(self) -> bool:
        """Whether a request is in progress."""
        ...

    def shed(self) -> None:
        """Close immediately, without writing anything."""
        ...


class Connections:
    """The connections of one listener, grouped by principal."""

    def __init__(self, capacity: int) -> None:
        self.capacity = max(capacity, 1)
        self._reserved = max(self.capacity // RESERVED, 1) if self.capacity > 1 else 0
        self._share = max(self.capacity // SHARE, 1)
        self._unknown: dict[Closable, None] = {}
        self._known: dict[Closable, str] = {}
        self._by_key: dict[str, dict[Closable, None]] = {}

    def __len__(self) -> int:
        return len(self._unknown) + len(self._known)

    def make_room(self) -> bool:
        """Return whether one more connection fits, closing a less important one if needed."""
        return len(self) < self.capacity or self.shed_one()

    def shed_one(self, keep: Closable | None = None) -> bool:
        """Close the least important connection other than `keep`. Return False if there is none to close."""
        candidates = (
            self._first_idle(self._unknown, keep)
            or next((each for each in self._unknown if each is not keep), None)
            or self._first_idle(self._largest(), keep)
            or self._first_idle(self._by_key.get(OWNER_KEY, ()), keep)
        )
        if candidates is None:
            return False
        self.remove(candidates)
        candidates.shed()
        return True

    def add(self, connection: Closable) -> None:
        """Add a connection that has no principal yet."""
        self._unknown[connection] = None

    def claim(self, connection: Closable, key: str) -> bool:
        """Assign a connection to the principal with this key. Return False if it has too many connections."""
        before = self._known.get(connection)
        if before == key:
            return True
        self.remove(connection)
        if key != OWNER_KEY and not self._fits(key):
            self._unknown[connection] = None
            return False
        self._known[connection] = key
        self._by_key.setdefault(key, {})[connection] = None
        return True

    def remove(self, connection: Closable) -> None:
        """Remove a connection. Idempotent."""
        self._unknown.pop(connection, None)
        key = self._known.pop(connection, None)
        if key is not None:
            held = self._by_key[key]
            del held[connection]
            if not held:
                del self._by_key[key]

    def _fits(self, key: str) -> bool:
        """Return whether a named token may hold one more connection, closing an idle one if needed."""
        held = self._by_key.get(key, {})
        named = len(self._known) - len(self._by_key.get(OWNER_KEY, ()))
        if len(held) < self._share and named < self.capacity - self._reserved:
            return True
        idle = self._first_idle(held)
        if idle is None and len(held) < self._share:
            # All named tokens together hold too many: close one of the token that holds the most.
            largest = self._largest()
            idle = self._first_idle(largest) if len(largest) > len(held) + 1 else None
        if idle is None:
            return False
        self.remove(idle)
        idle.shed()
        return True

    def _largest(self) -> dict[Closable, None]:
        named = [held for key, held in self._by_key.items() if key != OWNER_KEY]
        return max(named, key=len) if named else {}

    @staticmethod
    def _first_idle(connections: Iterable[Closable], keep: Closable | None = None) -> Closable | None:
        return next((each for each in connections if each is not keep and not each.is_busy), None)
