"""The whole application of a crib on the network: the guard, and behind it the MCP endpoint, REST and the console.

Above: `run` serves it. Below: `guard`, `api`, `mcp`, `console`. It must never hand out an application that is not
behind the guard.
"""

import importlib
from collections.abc import Callable, Mapping

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from toolcrib.host import Crib
from toolcrib.server import problems
from toolcrib.server.guard import Guard
from toolcrib.server.limits import Throttle
from toolcrib.server.login import LoginPage, Logins

DEFAULT_HTTP_PORT = "80"


def create_app(crib: Crib, mcp: ASGIApp, logins: Logins, *, address: str) -> Guard:
    """The application of this crib at this address (`host:port`), with every door behind the guard."""
    throttle = Throttle()
    return Guard(
        mcp=mcp,
        routes=create_routes(crib, logins, throttle, address=address),
        principals=crib.principals,
        logins=logins,
        throttle=throttle,
        hosts=own_hosts(address),
        body_bytes=crib.settings.max_body_bytes,
    )


class Doors:
    """The applications below each path, made when they are first asked for: a new crib is there before any of them."""

    def __init__(self, makers: Mapping[str, Callable[[], Starlette]]) -> None:
        """`makers` are named by the first part of a path; `/` is for all that nothing else is named for."""
        self._makers = makers
        self._made: dict[str, Starlette] = {}
        self._making = anyio.Lock()

    def all(self) -> list[Starlette]:
        """Every application, made anew."""
        return [make() for make in self._makers.values()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        path = "/" + scope["path"].split("/", 2)[1]
        path = path if path in self._makers else "/"
        app = self._made.get(path) or await self._make(path)
        await app(scope, receive, send)

    async def _make(self, path: str) -> Starlette:
        async with self._making:
            if path not in self._made:  # in a thread, since calls go on meanwhile
                self._made[path] = await anyio.to_thread.run_sync(self._makers[path])
            return self._made[path]


def create_routes(crib: Crib, logins: Logins, throttle: Throttle, *, address: str) -> Doors:
    """All routes but the MCP endpoint; to be served behind the guard only."""
    return Doors(
        {
            "/healthz": lambda: _plain(Route("/healthz", _health)),
            "/login": lambda: _plain(Route("/login", LoginPage(logins, throttle).show)),
            "/api": lambda: importlib.import_module("toolcrib.server.api").create_api(crib, logins),
            "/": lambda: _plain(*importlib.import_module("toolcrib.console.app").console_routes(crib, address)),
        }
    )


def _plain(*routes: Route) -> Starlette:
    app = Starlette(routes=routes)
    app.router.redirect_slashes = False
    problems.install(app)
    return app


def own_hosts(address: str) -> frozenset[str]:
    """The Host headers that mean this crib: the address itself and the names of this machine, with its port."""
    host, _, port = address.rpartition(":")
    names = {host, "127.0.0.1", "localhost", "[::1]"}
    bare = names if port == DEFAULT_HTTP_PORT else set[str]()
    return frozenset({f"{name}:{port}" for name in names} | bare)


async def _health(_: Request) -> Response:
    return JSONResponse({"status": "ok"})
