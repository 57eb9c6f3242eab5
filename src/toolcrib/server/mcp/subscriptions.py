"""Who wants to hear of which resource: a table of holders by server and URI.

A holder is a session of the legacy era or an open stream of the modern one. Servers are asked by whoever changes the
table, in the name of the session or of the asker whose stream it is; what stands here says who listens, and whether
anybody of that name still does.

Above: the methods and the SDK's server. It holds nothing but names.
"""

from collections.abc import Iterator
from typing import NamedTuple


class Holder(NamedTuple):
    """One that listens: in whose name a server was asked, and what tells it from others of the same name."""

    who: str
    stream: str = ""


class Subscriptions:
    """Holders by (server, URI)."""

    def __init__(self) -> None:
        self._holders: dict[tuple[str, str], set[Holder]] = {}

    def add(self, server: str, uri: str, holder: Holder) -> None:
        """This one wants to hear of it too."""
        self._holders.setdefault((server, uri), set()).add(holder)

    def drop(self, server: str, uri: str, holder: Holder) -> bool:
        """This one does not any more; says whether it was the last of its name."""
        holders = self._holders.get((server, uri), set())
        if holder not in holders:
            return False
        holders.discard(holder)
        if not holders:
            del self._holders[server, uri]
        return all(other.who != holder.who for other in holders)

    def forget(self, holder: Holder) -> list[tuple[str, str]]:
        """This one has gone; gives what nobody of its name wants to hear of any more."""
        held = [place for place, holders in self._holders.items() if holder in holders]
        return [(server, uri) for server, uri in held if self.drop(server, uri, holder)]

    def holders(self, server: str, uri: str) -> Iterator[tuple[Holder, str]]:
        """Who wants to hear of this URI, each with the one it asked for: that one, or one that this lies below."""
        for (of_server, asked), holders in list(self._holders.items()):
            if of_server == server and (uri == asked or uri.startswith(asked.rstrip("/") + "/")):
                yield from ((holder, asked) for holder in tuple(holders))
