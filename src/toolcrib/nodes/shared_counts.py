"""Counts that hold across nodes, such as those of limits and of failed sign-ins.

A use is stored before it is compared with its limit: two nodes that use up the last one at once both see both uses, so
that a limit can be reached early for a moment but is never exceeded.
"""

import secrets
from collections.abc import Sequence

from toolcrib.store.batch import ConstraintError
from toolcrib.store.engine import Store
from toolcrib.store.usage import Use, Used, add_uses, forget_uses, load_used, remove_uses


class SharedCounts:
    """The counts of all nodes on one database."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def add(self, key: str, amount: float, seconds: float | None) -> tuple[str, Used]:
        """Count a use; return its id and what counts now, including it. Without `seconds` it counts forever."""
        use = Use(secrets.token_hex(12), key, amount, seconds)
        await add_uses(self._store, [use])
        return use.id, await load_used(self._store, key, seconds)

    async def add_once(self, key: str, id: str) -> tuple[bool, Used]:
        """Count a use with this id once and forever; return whether it is new, and what counts now."""
        try:
            await add_uses(self._store, [Use(id, key, 1.0, None)])
        except ConstraintError:
            return False, await load_used(self._store, key, None)
        return True, await load_used(self._store, key, None)

    async def total(self, key: str) -> float:
        """Return what counts now and never expires."""
        return (await load_used(self._store, key, None)).amount

    async def take_back(self, ids: Sequence[str]) -> None:
        """Uncount refused uses."""
        if ids:
            await remove_uses(self._store, ids)

    async def forget(self, prefix: str) -> None:
        """Forget all uses whose keys start with this prefix."""
        await forget_uses(self._store, prefix)
