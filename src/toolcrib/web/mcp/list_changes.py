"""When the clients' lists are compared and their changes announced: soon after each change, at most twice a second.

A client may list between two changes. If another node serves it, this one cannot know what it saw: after several
changes at once, nodes of a cluster therefore announce the lists to all clients instead of comparing them.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from toolcrib.model.events import Event

ANNOUNCE_EVERY: Final = 0.5
"""Seconds between two announcements of a changed list, which batches bursts of changes."""


class ListChanges:
    """Collects changes of lists until they are announced. `shared` means that other nodes serve the lists too."""

    def __init__(self, *, shared: bool) -> None:
        self._is_shared = shared
        self._due = anyio.Event()
        self._is_uncertain = False

    def on_event(self, event: Event) -> None:
        """Note a change of the catalog or the permissions."""
        if event.kind == "catalog_changed":
            self._is_uncertain |= self._is_shared and self._due.is_set()
            self.note()

    def note(self) -> None:
        """Have the lists compared soon."""
        self._due.set()

    def distrust(self) -> None:
        """Have the lists announced to all clients: they may have changed and changed back, unseen by this node."""
        self._is_uncertain = True
        self._due.set()

    async def follow(self, announce: Callable[[bool], Awaitable[None]]) -> None:
        """Call `announce` after changes until cancelled, with whether all clients must be notified."""
        while True:
            await self._due.wait()
            self._due = anyio.Event()
            is_uncertain, self._is_uncertain = self._is_uncertain, False
            await announce(is_uncertain)
            await anyio.sleep(ANNOUNCE_EVERY)
