"""`/api/events`: the live events of the crib."""

from typing import Annotated

from fastapi import Query, Request, Response

from toolcrib.host import Crib
from toolcrib.web.api.resource import Resource
from toolcrib.web.limits import ENDED
from toolcrib.web.sse import MEDIA_TYPE, EventStream, resume_point


def routes(crib: Crib) -> Resource:
    """Return the routes of this crib."""
    router = Resource("events")

    @router.get(
        "",
        response_class=Response,
        responses={
            200: {"description": "A stream of events.", "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}
        },
    )
    async def follow_events(
        request: Request,
        after: Annotated[
            int | None,
            Query(ge=0, le=2**53, description="Continue after this event number; by default only new events."),
        ] = None,
    ) -> EventStream:
        """Stream events: `id` is the number to resume after, `event` the kind, `data` JSON."""
        start = await crib.feed.reach(resume_point(request, after))
        return EventStream(crib.feed, start, ended=request.scope.get(ENDED))

    return router
