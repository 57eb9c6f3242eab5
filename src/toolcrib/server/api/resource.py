"""The router of one resource under `/api`, with what all of them have in common.

Its routes are complete, so they stand in the application as they are: FastAPI's own way to include a router makes every
route a second time, while the first request waits for it.
"""

from typing import Any

from fastapi import APIRouter, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from toolcrib.server import problems
from toolcrib.server.api.shapes import ProblemDetails

_FAILURE: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "What went wrong, and what to do about it.",
        "content": {problems.MEDIA_TYPE: {"schema": ProblemDetails.model_json_schema()}},
    }
}
# Says in the description what the guard demands; it checks nothing itself.
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
