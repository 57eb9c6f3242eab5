"""REST under `/api`: one module per resource, put together here.

Above: `server.app` puts it behind the guard. Below: the crib. Every shape is a model, so that `/api/openapi.json` says
what is true; every failure leaves as a problem; no route is here that the guard has not let in.
"""

import importlib
from collections.abc import Mapping
from functools import partial
from itertools import chain
from typing import Final

from fastapi.exceptions import RequestValidationError
from fastapi.telemetry import TelemetryConfig
from starlette.routing import BaseRoute

from toolcrib.host import Crib
from toolcrib.server import problems
from toolcrib.server.api.late import LateApi
from toolcrib.server.api.reading import on_invalid
from toolcrib.server.login import Logins
from toolcrib.version import __version__

RESOURCES: Final[Mapping[str, tuple[str, ...]]] = {
    "servers": ("servers",),
    "connect": ("connect",),
    "tools": ("tool_changes", "tools"),
    "policy": ("policy",),
    "approvals": ("approvals",),
    "bundles": ("bundles",),
    "projects": ("projects",),
    "tokens": ("tokens",),
    "events": ("events",),
    "agents": ("agents",),
    "sessions": ("sessions",),
    "schedules": ("schedules",),
    "plugins": ("plugins",),
    "settings": ("settings",),
    "audit": ("audit",),
    "login": ("login",),
}
"""What is under `/api`, and the modules here that have its routes, in the order in which they are tried."""

# By itself FastAPI would let variables of the environment send traces, and exceptions with them, to anywhere.
_SILENT: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}


def create_api(crib: Crib, logins: Logins) -> LateApi:
    """The application with all routes under `/api`."""
    app = LateApi(
        title="Toolcrib",
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=_SILENT,
    )
    for name, modules in RESOURCES.items():
        app.resource(name, partial(_made, modules, logins if name == "login" else crib))
    problems.install(app)
    app.add_exception_handler(RequestValidationError, on_invalid)
    return app


def _made(modules: tuple[str, ...], on: Crib | Logins) -> list[BaseRoute]:
    routers = (importlib.import_module(f"{__name__}.{module}").routes(on) for module in modules)
    return list(chain.from_iterable(router.routes for router in routers))
