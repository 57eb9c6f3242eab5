"""REST under `/api`: one module per resource, put together here.

Above: `server.app` puts it behind the guard. Below: the crib. Every shape is a model, so that `/api/openapi.json` says
what is true; every failure leaves as a problem; no route is here that the guard has not let in.
"""

from typing import Any

from fastapi import FastAPI, Security
from fastapi.security import HTTPBearer
from fastapi.telemetry import TelemetryConfig

from toolcrib.host import Crib
from toolcrib.server import problems
from toolcrib.server.api import (
    agents,
    approvals,
    audit,
    bundles,
    events,
    login,
    policy,
    projects,
    servers,
    settings,
    tokens,
    tool_changes,
    tools,
)
from toolcrib.server.api.shapes import ProblemDetails
from toolcrib.server.login import Logins
from toolcrib.version import __version__

_FAILURE: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "What went wrong, and what to do about it.",
        "content": {problems.MEDIA_TYPE: {"schema": ProblemDetails.model_json_schema()}},
    }
}


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
        responses=_FAILURE,
        # Says in the description what the guard demands; it checks nothing itself.
        dependencies=[Security(HTTPBearer(auto_error=False, description="The token from the home's `token` file."))],
        generate_unique_id_function=lambda route: route.name,
    )
    for router in (
        servers.routes(crib),
        tool_changes.routes(crib),
        tools.routes(crib),
        policy.routes(crib),
        approvals.routes(crib),
        bundles.routes(crib),
        projects.routes(crib),
        tokens.routes(crib),
        events.routes(crib),
        agents.routes(crib),
        settings.routes(crib),
        audit.routes(crib),
        login.routes(logins),
    ):
        app.include_router(router)
    problems.install(app)
    return app
