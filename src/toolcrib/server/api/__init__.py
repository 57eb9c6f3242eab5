"""REST under `/api`: one module per resource, put together here.

Above: `server.app` puts it behind the guard. Below: the crib. Every shape is a model, so that `/api/openapi.json` says
what is true; every failure leaves as a problem; no route is here that the guard has not let in.
"""

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig

from toolcrib.host import Crib
from toolcrib.server import problems
from toolcrib.server.api import (
    agents,
    approvals,
    audit,
    bundles,
    connect,
    events,
    login,
    plugins,
    policy,
    projects,
    schedules,
    servers,
    sessions,
    settings,
    tokens,
    tool_changes,
    tools,
)
from toolcrib.server.login import Logins
from toolcrib.version import __version__

# By itself FastAPI would let variables of the environment send traces, and exceptions with them, to anywhere.
_SILENT: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}


def create_api(crib: Crib, logins: Logins) -> FastAPI:
    """The application with all routes under `/api`."""
    app = FastAPI(
        title="Toolcrib",
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=_SILENT,
    )
    for router in (
        servers.routes(crib),
        connect.routes(crib),
        tool_changes.routes(crib),
        tools.routes(crib),
        policy.routes(crib),
        approvals.routes(crib),
        bundles.routes(crib),
        projects.routes(crib),
        tokens.routes(crib),
        events.routes(crib),
        agents.routes(crib),
        sessions.routes(crib),
        schedules.routes(crib),
        plugins.routes(crib),
        settings.routes(crib),
        audit.routes(crib),
        login.routes(logins),
    ):
        app.router.routes += router.routes
    problems.install(app)
    return app
