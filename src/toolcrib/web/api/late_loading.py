"""A FastAPI application that creates the routes of a resource on first use.

Creating all routes takes most of a second, during which a new crib cannot answer, and a command needs only one
resource.

Must never create a resource twice.
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
"""Index of the first path segment after `/api/{name}`."""


class LateApi(FastAPI):
    """An application whose resources are registered with `resource`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._late: dict[str, Make] = {}
        self._making = anyio.Lock()

    def resource(self, name: str, make: Make) -> None:
        """Register a factory for the routes of a resource."""
        self._late[name] = make

    def complete(self) -> Sequence[BaseRoute]:
        """Create all remaining routes and return them."""
        for name in tuple(self._late):
            self.router.routes += self._late.pop(name)()
        return self.routes

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI schema of all resources."""
        self.complete()
        return super().openapi()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, creating the routes of its resource if needed."""
        if self._late and scope["type"] == "http":
            await self._make("/".join(scope["path"].split("/", _AFTER_NAME)[2:_AFTER_NAME]))
        await super().__call__(scope, receive, send)

    async def _make(self, name: str) -> None:
        async with self._making:
            make = self._late.get(name)
            if make is not None:  # in a thread, so that running calls are not blocked
                self.router.routes += await anyio.to_thread.run_sync(make)
                self._late.pop(name, None)
