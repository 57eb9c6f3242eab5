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

    def __init__(self, open_upstream: Callable[[Client, ClientSession, Callable[[], None]], Upstream]) -> None:
        self._open = open_upstream
        self._upstreams: dict[_Key, Upstream] = {}

    def of(self, client: Client) -> Upstream:
        """Return the upstream for calls of this client, which must have a session."""
        assert client.session is not None
        key = client.session, digest(client.capabilities), client.answers_by_retry
        upstream = self._upstreams.pop(key, None)
        if upstream is None:
            self._make_room()
            # A client that cannot retry with answers must receive requests directly, which only legacy servers send.
            session = ClientSession(client.session, None if client.answers_by_retry else "legacy")
            upstream = self._open(client, session, lambda: self._forget(key))
        self._upstreams[key] = upstream  # keep the most recently used last
        return upstream

    def end(self, session: str) -> None:
        """Stop the upstreams of a session."""
        for key in [key for key in self._upstreams if key[0] == session]:
            self._upstreams.pop(key).stop()

    def upstreams(self) -> tuple[Upstream, ...]:
        """Return all upstreams, the most recently used last."""
        return tuple(self._upstreams.values())

    def stop(self) -> None:
        """Stop all upstreams."""
        for upstream in self._upstreams.values():
            upstream.stop()
        self._upstreams.clear()

    def _forget(self, key: _Key) -> None:
        self._upstreams.pop(key, None)

    def _make_room(self) -> None:
        if len(self._upstreams) < SESSIONS_LIMIT:
            return
        idle = next((key for key, upstream in self._upstreams.items() if not upstream.is_used), None)
        if idle is None:
            message = f"All {SESSIONS_LIMIT} per-session connections to this server are in use."
            raise Unavailable("server.no_room", message, "Try again later, or close a session.")
        self._upstreams.pop(idle).stop()
