"""What the routes of `/api/agents` share: who sees which agent, who changed it, and how wrong fields are told."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Header, Request, Response
from fastapi.exceptions import RequestValidationError

from toolcrib.errors import Conflict
from toolcrib.model.principals import Principal
from toolcrib.server.api.reading import StrictRoute
from toolcrib.zoo import InvalidFields
from toolcrib.zoo.brain import unknown_agent

IfMatch = Annotated[str | None, Header(description="The `ETag` that was read.")]


class FieldsRoute(StrictRoute):
    """A route whose wrong fields are told one by one, wherever they were found out."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Hand what the zoo refuses on as what FastAPI would have refused."""
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
    """Whether this agent exists for the asker: one that is bound to an agent knows no other."""
    return principal.is_owner or principal.agent in (None, agent_id)


def check_sight(principal: Principal, agent_id: str) -> None:
    """Refuse an agent that does not exist for the asker as one that does not exist."""
    if not sees(principal, agent_id):
        raise unknown_agent(agent_id)


def author(principal: Principal) -> str:
    """Who made a change, as revisions tell it."""
    return f"{principal.name} ({principal.source})"


def version_of(if_match: str | None) -> int | None:
    """The version of an `ETag`; `*` fits any, and what never was one fits none."""
    if if_match is None or if_match.strip() == "*":
        return None
    text = if_match.strip().removeprefix("W/").strip('"')
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Conflict("request.stale", f"{if_match!r} is not a version of this agent.")
    return int(text)
