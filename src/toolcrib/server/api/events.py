"""`/api/events`: what happens in the crib, as it happens."""

from typing import Annotated

from fastapi import Query, Request, Response

from toolcrib.host import Crib
from toolcrib.server.api.resource import Resource
from toolcrib.server.guard import ENDED
from toolcrib.server.sse import MEDIA_TYPE, EventStream, resume_point


def routes(crib: Crib) -> Resource:
    """The routes, on this crib."""
    router = Resource("events")

    @router.get(
        "",
        response_class=Response,
        responses={
            200: {"description": "Events without end.", "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}
        },
    )
    async def follow_events(
        request: Request,
        after: Annotated[
            int | None, Query(ge=0, le=2**53, description="Go on after this number; from now on if absent.")
        ] = None,
    ) -> EventStream:
        """Follow the crib: `id` is the number to go on after, `event` the kind, `data` JSON."""
        return EventStream(crib.feed, resume_point(request, after), ended=request.scope.get(ENDED))

    return router
