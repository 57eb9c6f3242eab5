"""REST whose resources are made when they are first asked for.

Making the routes of all of them takes most of a second, in which a new crib answers nobody; a command asks for one.

Above: `api` says which resources there are. Below: FastAPI. It must never make one twice.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import anyio
import anyio.to_thread
from fastapi import FastAPI
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

Make: TypeAlias = Callable[[], Iterable[BaseRoute]]
_AFTER_NAME = 3
"""Where `/api/{name}/…` goes on behind the name of the resource."""


class LateApi(FastAPI):
    """`resource` names what is below `/api` and how its routes are made."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._late: dict[str, Make] = {}
        self._making = anyio.Lock()

    def resource(self, name: str, make: Make) -> None:
        """Have the routes of a resource made when one of them is first asked for."""
        self._late[name] = make

    def complete(self) -> Sequence[BaseRoute]:
        """All routes, made by now."""
        for name in tuple(self._late):
            self.router.routes += self._late.pop(name)()
        return self.routes

    def openapi(self) -> dict[str, Any]:
        """The description of all resources."""
        self.complete()
        return super().openapi()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if self._late and scope["type"] == "http":
            await self._make("/".join(scope["path"].split("/", _AFTER_NAME)[2:_AFTER_NAME]))
        await super().__call__(scope, receive, send)

    async def _make(self, name: str) -> None:
        async with self._making:
            make = self._late.get(name)
            if make is not None:  # in a thread, since calls of others go on meanwhile
                self.router.routes += await anyio.to_thread.run_sync(make)
                self._late.pop(name, None)
