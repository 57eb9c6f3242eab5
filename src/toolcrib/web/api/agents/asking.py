"""Helpers shared by the routes of `/api/agents`: visibility, authorship and field errors."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Header, Request, Response
from fastapi.exceptions import RequestValidationError

from toolcrib.agents.zoo.check import InvalidFields
from toolcrib.model.agents import unknown_agent
from toolcrib.model.errors import Conflict
from toolcrib.model.principals import Principal
from toolcrib.web.api.reading import StrictRoute

IfMatch = Annotated[str | None, Header(description="The `ETag` of the version you read.")]


class FieldsRoute(StrictRoute):
    """A route that reports every invalid field, wherever it was detected."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Convert `InvalidFields` to the validation error that FastAPI would raise."""
        handle = super().get_route_handler()

        async def handle_fields(request: Request) -> Response:
            try:
                return await handle(request)
            except InvalidFields as error:
                place = "query" if request.method == "GET" else "body"
                wrong = [{"loc": (place, *each.path), "msg": each.message} for each in error.fields]
                raise RequestValidationError(wrong) from error

        return handle_fields


def sees(principal: Principal, agent_id: str) -> bool:
    """Return whether the principal can see this agent: one bound to an agent sees no other."""
    return principal.is_owner or principal.agent in (None, agent_id)


def check_sight(principal: Principal, agent_id: str) -> None:
    """Raise `agent.unknown` if the principal cannot see this agent."""
    if not sees(principal, agent_id):
        raise unknown_agent(agent_id)


def author(principal: Principal) -> str:
    """Return the author of a change, as recorded in revisions."""
    return f"{principal.name} ({principal.source})"


def version_of(if_match: str | None) -> int | None:
    """Return the version of an `ETag`, or None for `*`. Raises `request.stale` for an invalid one."""
    if if_match is None or if_match.strip() == "*":
        return None
    text = if_match.strip().removeprefix("W/").strip('"')
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Conflict("request.stale", f"{if_match!r} is not a version of this agent.")
    return int(text)
