"""`/api/status`, `/api/stop-all` and `/api/resume-all`: the crib's state and the kill switch, for the owner."""

from typing import Annotated

from fastapi import Depends
from pydantic import Field

from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.version import __version__
from toolcrib.web.api.changing import Changing, owner_changes
from toolcrib.web.api.reading import StrictRoute, owner_only
from toolcrib.web.api.resource import Resource
from toolcrib.web.api.shapes import Shape


class StoppedShape(Shape):
    """When, by whom and why everything was stopped."""

    at: str
    by: str
    reason: str | None


class StatusShape(Shape):
    """The crib's state; `state` is `running` or `stopped`."""

    state: str
    stopped: StoppedShape | None
    version: str


class StopRequest(Shape):
    """The optional reason of a stop."""

    reason: str | None = Field(None, max_length=500)


def routes(crib: Crib) -> Resource:
    """Return the status route of this crib."""
    router = Resource("status")
    owner = Depends(owner_only(crib))

    @router.get("", response_model=StatusShape)
    async def show_status(principal: Annotated[Principal, owner]) -> JsonObject:
        """Return whether the crib is running or stopped."""
        return _status(crib)

    return router


def stop_routes(crib: Crib) -> Resource:
    """Return the route that stops everything."""
    router = Resource("stop-all", StrictRoute)
    changes = Depends(owner_changes(crib))

    @router.post("", response_model=StatusShape)
    async def stop_all(change: Annotated[Changing, changes], body: StopRequest | None = None) -> JsonObject:
        """End every session, schedule run and call, and suspend named tokens, until the owner resumes."""
        reason = body.reason if body is not None else None
        await crib.kill_switch.stop(by=change.principal, door=change.door, reason=reason)
        return _status(crib)

    return router


def resume_routes(crib: Crib) -> Resource:
    """Return the route that resumes after a stop."""
    router = Resource("resume-all")
    changes = Depends(owner_changes(crib))

    @router.post("", response_model=StatusShape)
    async def resume_all(change: Annotated[Changing, changes]) -> JsonObject:
        """Resume after a stop. Ended work is not restarted, except schedules at their next time."""
        await crib.kill_switch.resume(by=change.principal, door=change.door)
        return _status(crib)

    return router


def _status(crib: Crib) -> JsonObject:
    return {**crib.kill_switch.to_json(), "version": __version__}
