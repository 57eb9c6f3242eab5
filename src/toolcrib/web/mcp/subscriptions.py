"""Tracks resource subscriptions: which holders listen to which server and URI.

A holder is a legacy session or an open stream of the modern era. The caller that changes the table also subscribes at
the server, in the name of the session or principal. The table records the listeners and whether any of a name remain.
"""

from collections.abc import Iterator
from typing import NamedTuple

WATCHED_BY_ONE = 1_000
"""Resources that one stream or session may subscribe to."""


class Holder(NamedTuple):
    """A listener: the name used at the server, and the stream that distinguishes listeners of that name."""

    caller: str
    stream: str = ""


class Subscriptions:
    """Holders by (server, URI)."""

    def __init__(self) -> None:
        self._holders: dict[tuple[str, str], set[Holder]] = {}
        self._counts: dict[Holder, int] = {}

    def add(self, server: str, uri: str, holder: Holder) -> bool:
        """Subscribe a holder to this URI. Return whether it was not subscribed yet."""
        holders = self._holders.setdefault((server, uri), set())
        if holder in holders:
            return False
        holders.add(holder)
        self._counts[holder] = self._counts.get(holder, 0) + 1
        return True

    def drop(self, server: str, uri: str, holder: Holder) -> bool:
        """Unsubscribe a holder. Return whether it was the last one of its name."""
        holders = self._holders.get((server, uri), set())
        if holder not in holders:
            return False
        holders.discard(holder)
        self._counts[holder] -= 1
        if not self._counts[holder]:
            del self._counts[holder]
        if not holders:
            del self._holders[server, uri]
        return all(other.caller != holder.caller for other in holders)

    def count(self, holder: Holder) -> int:
        """Return the number of resources this holder is subscribed to."""
        return self._counts.get(holder, 0)

    def forget(self, holder: Holder) -> list[tuple[str, str]]:
        """Remove a holder. Return the subscriptions that no holder of its name needs anymore."""
        held = [place for place, holders in self._holders.items() if holder in holders]
        return [(server, uri) for server, uri in held if self.drop(server, uri, holder)]

    def holders(self, server: str, uri: str) -> Iterator[tuple[Holder, str]]:
        """Yield the holders of this URI or of a parent, each with the URI it subscribed to."""
        for (of_server, asked), holders in list(self._holders.items()):
            if of_server == server and (uri == asked or uri.startswith(asked.rstrip("/") + "/")):
                yield from ((holder, asked) for holder in tuple(holders))
