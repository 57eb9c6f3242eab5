"""Connections of their own for the sessions of clients, to one server that is not shared between them.

A legacy server is told once what its client can do, and asks it live; so the client behind a call can be asked only on
a connection that is opened in its name. Above: `pool` makes them, `upstream` uses them. Below: `link`. It must never
let a call of one session run on the connection of another.
"""

from collections.abc import Callable
from typing import Final

from toolcrib.connect.link import Link, Session
from toolcrib.errors import Unavailable
from toolcrib.model.json import digest
from toolcrib.model.sources import Client

SESSIONS_LIMIT: Final = 64

_Key = tuple[str, str, bool]


class SessionLinks:
    """The links of one server, by session and by what the session's client can do."""

    def __init__(self, open_link: Callable[[Client, Session, Callable[[], None]], Link]) -> None:
        self._open = open_link
        self._links: dict[_Key, Link] = {}

    def of(self, client: Client) -> Link:
        """The link for calls of this client, which has a session."""
        assert client.session is not None
        key = client.session, digest(client.capabilities), client.answers_by_retry
        link = self._links.pop(key, None)
        if link is None:
            self._make_room()
            # A client that cannot repeat its request with answers has to be asked live, which modern servers do not.
            session = Session(client.session, None if client.answers_by_retry else "legacy")
            link = self._open(client, session, lambda: self._forget(key))
        self._links[key] = link  # the one used last is the last
        return link

    def end(self, session: str) -> None:
        """The session is over."""
        for key in [key for key in self._links if key[0] == session]:
            self._links.pop(key).stop()

    def stop(self) -> None:
        """End all of them."""
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
            message = f"All {SESSIONS_LIMIT} connections that sessions may have with this server are in use."
            raise Unavailable("server.no_room", message, "Try again when some of them are idle.")
        self._links.pop(idle).stop()
