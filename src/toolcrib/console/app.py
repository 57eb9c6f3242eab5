"""The console as a part of the application: all its routes.

Above: `server.app` puts them behind the guard. Below: the screens.
"""

from starlette.routing import Route

from toolcrib.console import assets
from toolcrib.console.respond import Console, route
from toolcrib.console.screens import (
    access,
    activity,
    agents,
    connect,
    find,
    schedules,
    server,
    server_add,
    servers,
    sessions,
    settings,
    tool,
    tools,
    waiting,
)
from toolcrib.host import Crib

SCREENS = (
    servers,
    server_add,
    server,
    tools,
    tool,
    sessions,
    waiting,
    find,
    agents,
    access,
    activity,
    schedules,
    connect,
    settings,
)
"""In this order their routes are tried."""


def console_routes(crib: Crib, address: str) -> list[Route]:
    """Every page, every part and every file of the console."""
    console = Console(crib, address, [screen.__name__.rpartition(".")[2] for screen in SCREENS])
    pages = [console.caught(each) for screen in SCREENS for each in screen.routes(console)]
    return [*pages, route(f"{assets.PREFIX}{{name}}", assets.serve)]
