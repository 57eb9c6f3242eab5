"""All routes of the console."""

from starlette.routing import Route

from toolcrib.host import Crib
from toolcrib.web.console import assets
from toolcrib.web.console.form_routes import find_pages
from toolcrib.web.console.responses import Console, route
from toolcrib.web.console.screens import (
    activity,
    apps,
    connect,
    find,
    notifications,
    overview,
    schedules,
    sessions,
    settings,
    stop,
    waiting,
)
from toolcrib.web.console.screens.access import check as access
from toolcrib.web.console.screens.agents import list as agents
from toolcrib.web.console.screens.servers import add as server_add
from toolcrib.web.console.screens.servers import list as servers
from toolcrib.web.console.screens.servers import registry as server_registry
from toolcrib.web.console.screens.servers import secrets, server
from toolcrib.web.console.screens.tools import list as tools
from toolcrib.web.console.screens.tools import review, tool

SCREENS = (
    overview,
    servers,
    server_add,
    server_registry,
    secrets,
    server,
    tools,
    review,
    tool,
    sessions,
    apps,
    waiting,
    notifications,
    find,
    agents,
    access,
    activity,
    schedules,
    connect,
    settings,
    stop,
)
"""Routes are matched in this order."""


def console_routes(crib: Crib, address: str) -> list[Route]:
    """Return the routes of all pages, fragments and static files."""
    console = Console(crib, address)
    pages = [console.caught(each) for screen in SCREENS for each in screen.routes(console)]
    console.forms = find_pages(pages)
    files = [
        route(assets.MANIFEST, assets.serve_manifest),
        route(assets.SERVICE_WORKER, assets.serve_service_worker),
        route(f"{assets.PREFIX}{{name}}", assets.serve),
    ]
    return [*pages, *files]
