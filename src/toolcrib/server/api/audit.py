"""`/api/audit`: what was called and who allowed it, whether the record is whole, and where old records go."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Depends, Query
from fastapi.responses import StreamingResponse

from toolcrib.audit import Filters
from toolcrib.errors import Conflict
from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.policy import Verdict
from toolcrib.model.tools import ToolRef
from toolcrib.principals import Door
from toolcrib.server.api.changing import Changing, owner_changes
from toolcrib.server.api.reading import StrictRoute
from toolcrib.server.api.resource import Resource
from toolcrib.server.api.shapes import AgeRequest, AuditPhase, AuditRecordShape, SegmentShape, VerificationShape

_LINES = "application/x-ndjson"
_After = Annotated[int, Query(ge=0, le=2**62, description="Begin after this record.")]
_Upto = Annotated[int | None, Query(ge=1, le=2**62, description="End with this record.")]
_Text = Annotated[str | None, Query(max_length=500)]


def routes(crib: Crib) -> Resource:
    """The routes, on this crib."""
    router = Resource("audit", StrictRoute)

    @router.get("", response_model=list[AuditRecordShape], response_model_exclude_unset=True)
    async def list_audit(filters: Annotated[Filters, Depends(_filters)]) -> list[JsonObject]:
        """The records that fit all filters, newest first."""
        return await crib.audit.find(filters)

    @router.get("/verify", response_model=VerificationShape, response_model_exclude_unset=True)
    async def verify_audit() -> JsonObject:
        """Check every record and every link; what was edited, moved, missing or cut off is in `findings`."""
        return (await crib.audit.verify()).to_json()

    @router.get(
        "/export",
        response_class=StreamingResponse,
        responses={200: {"description": "Lines of JSON.", "content": {_LINES: {"schema": {"type": "string"}}}}},
    )
    async def export_audit(after: _After = 0, upto: _Upto = None) -> StreamingResponse:
        """All records but erased ones, sealed ones too, the oldest first; each line proves itself by its hash."""
        await crib.store.caught_up()
        return StreamingResponse(crib.audit.segments.export(after, upto), media_type=_LINES)

    _add_segments(router, crib)
    return router


def _add_segments(router: Resource, crib: Crib) -> None:
    changes = Depends(owner_changes(crib))

    @router.get("/segments", response_model=list[SegmentShape], response_model_exclude_unset=True)
    async def list_segments() -> list[JsonObject]:
        """The files that old records were sealed in, the oldest first, erased ones too."""
        return [segment.to_json() for segment in await crib.audit.segments.list()]

    @router.post("/seal", response_model=list[SegmentShape], response_model_exclude_unset=True)
    async def seal_audit(change: Annotated[Changing, changes], body: AgeRequest) -> list[JsonObject]:
        """Move old records into sealed files, but for the newest hundred; gives the new files."""
        if crib.store.shared:
            raise Conflict("audit.shared", "Other cribs may use this database.")
        segments = crib.audit.segments
        sealed = await segments.seal(_before(body), by=change.principal, door=change.door)
        return [segment.to_json() for segment in sealed]

    @router.post("/erase", response_model=list[SegmentShape], response_model_exclude_unset=True)
    async def erase_audit(change: Annotated[Changing, changes], body: AgeRequest) -> list[JsonObject]:
        """Remove files that were sealed that long ago; the chain keeps a record of each, and stays whole."""
        erased = await crib.audit.segments.erase(_before(body), by=change.principal, door=change.door)
        return [segment.to_json() for segment in erased]


def _before(body: AgeRequest) -> datetime:
    return datetime.now(UTC) - timedelta(days=body.older_than_days)


def _filters(
    server: _Text = None,
    tool: Annotated[str | None, Query(max_length=500, description="A tool's name, or `server/tool`.")] = None,
    agent: _Text = None,
    principal: _Text = None,
    session: _Text = None,
    door: Door | None = None,
    phase: AuditPhase | None = None,
    decision: Verdict | None = None,
    since: Annotated[datetime | None, Query(description="From this time on.")] = None,
    until: Annotated[datetime | None, Query(description="Before this time.")] = None,
    after: Annotated[int | None, Query(ge=0, description="Go on after this record, with older ones.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Filters:
    if server is None and tool is not None and (ref := ToolRef.parse(tool)):
        server, tool = ref
    return Filters(
        server,
        tool,
        agent,
        decision,
        phase,
        door,
        principal,
        session,
        since=since,
        until=until,
        after=after,
        limit=limit,
    )
