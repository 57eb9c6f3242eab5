"""Per-session connections to one server that is not shared between sessions.

A legacy server learns the client's capabilities once, in the handshake, and sends requests of its own. The client
behind a call can therefore answer only on a connection opened on its behalf.

Must never run a call of one session on the connection of another.
"""

from collections.abc import Callable
from typing import Final

from toolcrib.model.errors import Unavailable
from toolcrib.model.json import digest
from toolcrib.model.sources import Client
from toolcrib.upstream.upstream import ClientSession, Upstream

SESSIONS_LIMIT: Final = 64

_Key = tuple[str, str, bool]


class SessionUpstreams:
    """The upstreams of one server, by session and client capabilities."""

    def __init__(self, open_link: Callable[[Client, ClientSession, Callable[[], None]], Upstream]) -> None:
        self._open = open_link
        self._links: dict[_Key, Upstream] = {}

    def of(self, client: Client) -> Upstream:
        """Return the upstream for calls of this client, which must have a session."""
        assert client.session is not None
        key = client.session, digest(client.capabilities), client.answers_by_retry
        link = self._links.pop(key, None)
        if link is None:
            self._make_room()
            # A client that cannot retry with answers must receive requests directly, which only legacy servers send.
            session = ClientSession(client.session, None if client.answers_by_retry else "legacy")
            link = self._open(client, session, lambda: self._forget(key))
        self._links[key] = link  # keep the most recently used last
        return link

    def end(self, session: str) -> None:
        """Stop the upstreams of a session."""
        for key in [key for key in self._links if key[0] == session]:
            self._links.pop(key).stop()

    def links(self) -> tuple[Upstream, ...]:
        """Return all upstreams, the most recently used last."""
        return tuple(self._links.values())

    def stop(self) -> None:
        """Stop all upstreams."""
        for link in self._links.values():
            link.stop()
        self._links.clear()

    def _forget(self, key: _Key) -> None:
        self._links.pop(key, None)

    def _make_room(self) -> None:
        if len(self._links) < SESSIONS_LIMIT:
            return
        idle = next((key for key, link in self._links.items() if not link.is_used), None)
        if idle is None:
            message = f"All {SESSIONS_LIMIT} per-session connections to this server are in use."
            raise Unavailable("server.no_room", message, "Try again later, or close a session.")
        self._links.pop(idle).stop()
