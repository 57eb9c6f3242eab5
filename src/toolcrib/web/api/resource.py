"""The router of one resource under `/api`, with the defaults that all of them share.

Its routes are complete and are added to the application directly. FastAPI's `include_router` would create every route a
second time while the first request waits.
"""

from typing import Any

from fastapi import APIRouter, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from toolcrib.web import problems
from toolcrib.web.api.shapes import ProblemDetails

_FAILURE: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "A problem (RFC 9457) with `code`, `detail` and `hint`.",
        "content": {problems.MEDIA_TYPE: {"schema": ProblemDetails.model_json_schema()}},
    }
}
# Documents in the schema what the guard requires; it checks nothing itself.
_TOKEN = Security(HTTPBearer(auto_error=False, description="The token from the home's `token` file."))


class Resource(APIRouter):
    """The routes under `/api/{name}`."""

    def __init__(self, name: str, route_class: type[APIRoute] = APIRoute) -> None:
        super().__init__(
            prefix=f"/api/{name}",
            tags=[name],
            dependencies=[_TOKEN],
            responses=_FAILURE,
            route_class=route_class,
            generate_unique_id_function=lambda route: route.name,
        )
