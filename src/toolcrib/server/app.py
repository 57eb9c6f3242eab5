"""The whole application of a crib on the network: the guard, and behind it the MCP endpoint, REST and the console.

Above: `run` serves it. Below: `guard`, `api`, `mcp`, `console`. It must never hand out an application that is not
behind the guard.
"""

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from toolcrib.console.page import STYLE_PATH, CribView, crib_page, style
from toolcrib.host import Crib
from toolcrib.server.api import create_api
from toolcrib.server.guard import PRINCIPAL, Guard
from toolcrib.server.limits import Throttle
from toolcrib.server.login import LoginPage, Logins
from toolcrib.version import __version__

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


def create_routes(crib: Crib, logins: Logins, throttle: Throttle, *, address: str) -> FastAPI:
    """All routes but the MCP endpoint; to be served behind the guard only."""
    app = create_api(crib, logins)
    app.router.routes += [
        Route("/healthz", _health),
        Route("/login", LoginPage(logins, throttle).show),
        Route("/", _Console(crib, address).show),
        Route(STYLE_PATH, _style),
    ]
    return app


def own_hosts(address: str) -> frozenset[str]:
    """The Host headers that mean this crib: the address itself and the names of this machine, with its port."""
    host, _, port = address.rpartition(":")
    names = {host, "127.0.0.1", "localhost", "[::1]"}
    bare = names if port == DEFAULT_HTTP_PORT else set[str]()
    return frozenset({f"{name}:{port}" for name in names} | bare)


async def _health(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _style(_: Request) -> Response:
    return Response(style(), media_type="text/css")


class _Console:
    """The console's page."""

    def __init__(self, crib: Crib, address: str) -> None:
        self._crib = crib
        self._address = address

    async def show(self, request: Request) -> Response:
        crib = self._crib
        found = await crib.servers.list(crib.settings.default_cwd)
        view = CribView(
            version=__version__,
            home=str(crib.home.root),
            started_at=crib.started_at.isoformat(sep=" ", timespec="minutes"),
            mcp_url=f"http://{self._address}/mcp",
            token_file=str(crib.home.token_file),
            tools=crib.gate.listing(request.scope[PRINCIPAL]).tools,
            servers=found.servers,
            problems=(*crib.catalog.snapshot.problems, *found.problems),
        )
        return HTMLResponse(crib_page(view))
