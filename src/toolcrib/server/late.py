"""An application whose parts are made when they are first asked for.

Making the routes of everything takes most of a second, in which a new crib answers nobody; a command asks for one part.

Above: `api` and `app` say which parts there are. Below: FastAPI. It must never make a part twice.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from fastapi import FastAPI
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

Make: TypeAlias = Callable[[], Iterable[BaseRoute]]
_DEPTH = 2
"""How many segments of a path name its part, if a part of that name is there."""


class LateApp(FastAPI):
    """`part` names what is below a path and how its routes are made; `/` is for all that nothing else is named for."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._parts: dict[str, Make | None] = {}

    def part(self, path: str, make: Make) -> None:
        """Have the routes below this path made when one of them is first asked for."""
        self._parts[path] = make

    def complete(self) -> Sequence[BaseRoute]:
        """All routes, made by now."""
        for path in tuple(self._parts):
            self._make(path)
        return self.routes

    def openapi(self) -> dict[str, Any]:
        """The description of all parts."""
        self.complete()
        return super().openapi()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http":
            path = "/".join(scope["path"].split("/", _DEPTH + 1)[: _DEPTH + 1])
            self._make(path if path in self._parts else "/")
        await super().__call__(scope, receive, send)

    def _make(self, path: str) -> None:
        make = self._parts.get(path)
        if make is not None:
            self._parts[path] = None
            self.router.routes += make()
