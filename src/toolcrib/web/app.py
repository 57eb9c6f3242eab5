"""Builds the ASGI application of a crib: the guard in front of the MCP endpoint, the REST API and the console.

Must never return an application that is not behind the guard.
"""

import importlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from urllib.parse import parse_qs

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from toolcrib.gate.audit.actor import Actor, acting
from toolcrib.host import Crib
from toolcrib.model.errors import Unavailable
from toolcrib.model.principals import Principal
from toolcrib.nodes.shared_counts import SharedCounts
from toolcrib.web import problems
from toolcrib.web.forwarded import ForwardedRequests
from toolcrib.web.guard import RequestGuard
from toolcrib.web.limits import PRINCIPAL, Throttle
from toolcrib.web.login import LoginPage, Logins
from toolcrib.web.stopping import Stopping

DEFAULT_HTTP_PORT = "80"
_READING = frozenset({"GET", "HEAD", "OPTIONS"})


def create_app(
    crib: Crib, mcp: ASGIApp, logins: Logins, *, address: str, stopping: Stopping | None = None
) -> RequestGuard:
    """Return the guarded application of this crib, served at `address` (`host:port`)."""
    throttle = Throttle(counts=SharedCounts(crib.store) if crib.store.shared else None)
    return RequestGuard(
        mcp=mcp,
        routes=create_routes(crib, logins, throttle, address=address),
        principals=crib.principals,
        logins=logins,
        throttle=throttle,
        stop_switch=crib.stop_switch,
        address=address,
        hosts=own_hosts(address),
        body_bytes=crib.settings.max_body_bytes,
        stopping=stopping,
        forwarded=_forwarded_requests(crib),
        link_address=crib.settings.approval_address,
    )


def _forwarded_requests(crib: Crib) -> ForwardedRequests | None:
    signer = crib.request_signer
    return ForwardedRequests(signer, crib.principals, crib.tokens) if signer is not None else None


class Doors:
    """Dispatches to one application per path prefix. Each is created on first use, so that a crib starts quickly."""

    def __init__(self, makers: Mapping[str, Callable[[], Starlette]]) -> None:
        """`makers` maps the first path segment to a factory; `/` is the fallback."""
        self._makers = makers
        self._made: dict[str, Starlette] = {}
        self._making = anyio.Lock()

    def all(self) -> list[Starlette]:
        """Return new instances of all applications."""
        return [make() for make in self._makers.values()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, attributing changes to its principal."""
        path = "/" + scope["path"].split("/", 2)[1]
        path = path if path in self._makers else "/"
        app = self._made.get(path) or await self._make(path)
        principal: Principal | None = scope.get(PRINCIPAL)
        if principal is None or scope["method"] in _READING:
            await app(scope, receive, send)
            return
        with acting(*_actor(scope, principal)):
            await app(scope, receive, send)

    async def _make(self, path: str) -> Starlette:
        async with self._making:
            if path not in self._made:  # in a thread, so that running calls are not blocked
                self._made[path] = await anyio.to_thread.run_sync(self._makers[path])
            return self._made[path]


def _actor(scope: Scope, principal: Principal) -> Actor:
    """Return the actor that changes are attributed to. The CLI identifies itself with `?source=cli`."""
    if principal.source == "web":
        return Actor(principal, "console")
    if principal.is_owner and b"cli" in parse_qs(scope["query_string"]).get(b"source", ()):
        return Actor(replace(principal, source="cli"), "cli")
    return Actor(principal, "api")


def create_routes(crib: Crib, logins: Logins, throttle: Throttle, *, address: str) -> Doors:
    """Return all routes except the MCP endpoint. Must be served behind the guard."""
    login = LoginPage(logins, throttle, crib.principals, crib.push.remove_of_login)
    return Doors(
        {
            "/healthz": lambda: _plain(Route("/healthz", _health_of(crib))),
            "/metrics": lambda: _plain(Route("/metrics", _metrics(crib))),
            "/login": lambda: _plain(Route("/login", login.show, methods=["GET", "HEAD", "POST"])),
            "/logout": lambda: _plain(Route("/logout", login.sign_out, methods=["POST"])),
            "/approve": lambda: _plain(*importlib.import_module("toolcrib.web.approval_page").link_routes(crib)),
            "/api": lambda: importlib.import_module("toolcrib.web.api.routes").create_api(crib, logins),
            "/": lambda: _plain(*importlib.import_module("toolcrib.web.console.app").console_routes(crib, address)),
        }
    )


def _metrics(crib: Crib) -> Callable[[Request], Awaitable[Response]]:
    return importlib.import_module("toolcrib.web.metrics").MetricsPage(crib).show


def _plain(*routes: Route) -> Starlette:
    app = Starlette(routes=routes)
    app.router.redirect_slashes = False
    problems.install(app)
    return app


def own_hosts(address: str) -> frozenset[str]:
    """Return the Host headers that name this crib: the address and the loopback names, with its port."""
    host, _, port = address.rpartition(":")
    names = {host, "127.0.0.1", "localhost", "[::1]"}
    bare = names if port == DEFAULT_HTTP_PORT else set[str]()
    return frozenset({f"{name}:{port}" for name in names} | bare)


def _health_of(crib: Crib) -> Callable[[Request], Awaitable[Response]]:
    async def health(_: Request) -> Response:
        if crib.membership.lost:  # it refuses all calls: a proxy should use another node
            raise Unavailable("node.lost", "This node lost its lease, so it makes no calls.")
        return JSONResponse({"status": "ok"})

    return health
