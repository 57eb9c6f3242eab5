"""Changes that the owner asks for: each is on record before it is made and before it is answered.

Above: the routes that change what is allowed. Below: `audit.changes`. It must never say anything else of who asks than
what the guard found out.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.principals import Door
from toolcrib.server.api.reading import door_of, owner_only

T = TypeVar("T")


class Changing:
    """Somebody who changes something, through one door."""

    def __init__(self, crib: Crib, principal: Principal, door: Door) -> None:
        self.principal = principal
        self._crib = crib
        self.door: Door = door

    async def make(self, kind: str, changed: JsonObject, work: Callable[[], Awaitable[T]]) -> T:
        """Make a change, on record; see `Changes.make`."""
        return await self._crib.changes.make(kind, changed, work, by=self.principal, door=self.door)


def owner_changes(crib: Crib) -> Callable[..., Changing]:
    """A dependency: the owner, who changes something."""

    def who(request: Request, principal: Annotated[Principal, Depends(owner_only(crib))]) -> Changing:
        return Changing(crib, principal, door_of(request, principal))

    return who
