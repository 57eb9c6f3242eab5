"""The whole application of a crib on the network: the guard, and behind it the MCP endpoint, REST and the console.

Above: `run` serves it. Below: `guard`, `api`, `mcp`, `console`. It must never hand out an application that is not
behind the guard.
"""

import importlib

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from toolcrib.host import Crib
from toolcrib.server.api import create_api
from toolcrib.server.guard import Guard
from toolcrib.server.late import LateApp
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


def create_routes(crib: Crib, logins: Logins, throttle: Throttle, *, address: str) -> LateApp:
    """All routes but the MCP endpoint; to be served behind the guard only."""
    app = create_api(crib, logins)
    app.part("/healthz", lambda: [Route("/healthz", _health)])
    app.part("/login", lambda: [Route("/login", LoginPage(logins, throttle).show)])
    app.part("/", lambda: importlib.import_module("toolcrib.console.app").console_routes(crib, address))
    return app


def own_hosts(address: str) -> frozenset[str]:
    """The Host headers that mean this crib: the address itself and the names of this machine, with its port."""
    host, _, port = address.rpartition(":")
    names = {host, "127.0.0.1", "localhost", "[::1]"}
    bare = names if port == DEFAULT_HTTP_PORT else set[str]()
    return frozenset({f"{name}:{port}" for name in names} | bare)


async def _health(_: Request) -> Response:
    return JSONResponse({"status": "ok"})
