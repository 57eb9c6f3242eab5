"""Assembles the REST API under `/api` from one module or package per resource.

Every shape is a model, so that `/api/openapi.json` is correct. Every failure becomes a problem document. The guard
has authenticated each request before it gets here.
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
from toolcrib.model.version import __version__
from toolcrib.web import problems
from toolcrib.web.api.late_loading import LateApi
from toolcrib.web.api.reading import on_invalid
from toolcrib.web.login import Logins

RESOURCES: Final[Mapping[str, tuple[str, ...]]] = {
    "servers": ("servers.routes",),
    "registry": ("registry",),
    "connect": ("connect.routes",),
    "secrets": ("secrets",),
    "tools": ("tools.changes", "tools.routes"),
    "policy": ("policy.routes",),
    "approvals": ("approvals",),
    "bundles": ("bundles",),
    "projects": ("projects",),
    "tokens": ("tokens",),
    "events": ("events",),
    "agents": ("agents.routes",),
    "sessions": ("sessions.routes",),
    "schedules": ("schedules.routes",),
    "plugins": ("plugins",),
    "settings": ("settings",),
    "audit": ("audit",),
    "login": ("login",),
    "backups": ("backups",),
    "nodes": ("nodes",),
    "status": ("status",),
    "stop-all": ("stop_all",),
    "resume-all": ("resume_all",),
}
"""The resources under `/api`, each with the modules of this package that define its routes, in matching order."""

# By default, FastAPI lets environment variables enable exporting traces, including exceptions, to any host.
_SILENT: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}


def create_api(crib: Crib, logins: Logins) -> LateApi:
    """Return the application with all routes under `/api`."""
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
        app.resource(name, partial(_create_routes, modules, logins if name == "login" else crib))
    problems.install(app)
    app.add_exception_handler(RequestValidationError, on_invalid)
    return app


def _create_routes(modules: tuple[str, ...], on: Crib | Logins) -> list[BaseRoute]:
    routers = (importlib.import_module(f"{__package__}.{module}").routes(on) for module in modules)
    return list(chain.from_iterable(router.routes for router in routers))
