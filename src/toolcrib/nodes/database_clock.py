"""The time of the shared database, which decides when something is due: the clocks of nodes may differ.

The time is read from the database now and then, and continued with a steady clock in between, so that `now` never
waits. The wall clock of the node has no influence.
"""

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import select

from toolcrib.model.nodes import at_seconds
from toolcrib.nodes.membership import steady_seconds
from toolcrib.store.clock import database_seconds
from toolcrib.store.engine import Store


class DatabaseClock:
    """The clock of a database. `synchronise` must have succeeded once before `now` is called."""

    def __init__(self, store: Store, steady: Callable[[], float] = steady_seconds) -> None:
        self._store = store
        self._steady = steady
        self._ahead = 0.0

    async def synchronise(self) -> None:
        """Read the time from the database. Raises `Unavailable`."""
        sent = self._steady()
        seconds = await self._store.read(lambda connection: connection.execute(select(database_seconds())).scalar_one())
        self._ahead = seconds - (sent + self._steady()) / 2

    def now(self) -> datetime:
        """Return the current time of the database."""
        return at_seconds(self._steady() + self._ahead)
