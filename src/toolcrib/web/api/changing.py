"""Changes by the owner, each recorded in the audit log before it is made.

Must never attribute a change to another principal than the one the guard authenticated.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from toolcrib.gate.principals import Door
from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.web.api.reading import door_of, owner_only

T = TypeVar("T")


class Changing:
    """A principal that makes changes through one door."""

    def __init__(self, crib: Crib, principal: Principal, door: Door) -> None:
        self.principal = principal
        self._crib = crib
        self.door: Door = door

    async def make(self, kind: str, changed: JsonObject, work: Callable[[], Awaitable[T]]) -> T:
        """Make a recorded change; see `Changes.make`."""
        return await self._crib.changes.make(kind, changed, work, by=self.principal, door=self.door)


def owner_changes(crib: Crib) -> Callable[..., Changing]:
    """Return a dependency that provides a `Changing` for the owner."""

    def changing(request: Request, principal: Annotated[Principal, Depends(owner_only(crib))]) -> Changing:
        return Changing(crib, principal, door_of(request, principal))

    return changing
