"""`/api/audit`: search, verify, export, seal and erase audit records."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Depends, Query
from fastapi.responses import StreamingResponse

from toolcrib.gate.audit.anchors import Anchor
from toolcrib.gate.principals import Door
from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.policy import Verdict
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef
from toolcrib.store.audit import Filters
from toolcrib.web.api.changing import Changing, owner_changes
from toolcrib.web.api.reading import StrictRoute, owner_only
from toolcrib.web.api.resource import Resource
from toolcrib.web.api.shapes import (
    AgeRequest,
    AnchorRequest,
    AnchorShape,
    AuditPhase,
    AuditRecordShape,
    SegmentShape,
    VerificationShape,
    VerifyRequest,
)

_LINES = "application/x-ndjson"
_After = Annotated[int, Query(ge=0, le=2**62, description="Start after this record.")]
_Upto = Annotated[int | None, Query(ge=1, le=2**62, description="End with this record.")]
_Text = Annotated[str | None, Query(max_length=500)]


def routes(crib: Crib) -> Resource:
    """Return the routes of this crib."""
    router = Resource("audit", StrictRoute)
    owner = Depends(owner_only(crib))

    @router.get("", response_model=list[AuditRecordShape], response_model_exclude_unset=True)
    async def list_audit(filters: Annotated[Filters, Depends(_filters)]) -> list[JsonObject]:
        """List the records that match all filters, newest first."""
        return await crib.audit.find(filters)

    @router.get("/verify", response_model=VerificationShape, response_model_exclude_unset=True)
    async def verify_audit() -> JsonObject:
        """Verify every record and link; `findings` lists edited, moved, missing or truncated records."""
        return (await crib.audit.verify()).to_json()

    @router.post("/verify", response_model=VerificationShape, response_model_exclude_unset=True)
    async def verify_anchored(principal: Annotated[Principal, owner], body: VerifyRequest) -> JsonObject:
        """Verify the chain, and that it still has every record that these anchors name."""
        anchors = [Anchor.of_json(shape) for shape in body.anchors]
        for source in body.sources:
            anchors += await crib.anchoring.read(source)
        return (await crib.audit.verify(anchors)).to_json()

    @router.post("/anchor", response_model=AnchorShape, response_model_exclude_unset=True)
    async def anchor_audit(principal: Annotated[Principal, owner], body: AnchorRequest) -> JsonObject:
        """Return an anchor of the chain's current end, and write it to `to` if given."""
        return (await crib.anchoring.write(body.to)).to_json()

    @router.get(
        "/export",
        response_class=StreamingResponse,
        responses={
            200: {"description": "JSON Lines, one record each.", "content": {_LINES: {"schema": {"type": "string"}}}}
        },
    )
    async def export_audit(after: _After = 0, upto: _Upto = None) -> StreamingResponse:
        """Export all records except erased ones, oldest first, including sealed ones. Each line carries its hash."""
        await crib.store.caught_up()
        return StreamingResponse(crib.audit.export(after, upto), media_type=_LINES)

    _add_segments(router, crib)
    return router


def _add_segments(router: Resource, crib: Crib) -> None:
    changes = Depends(owner_changes(crib))

    @router.get("/segments", response_model=list[SegmentShape], response_model_exclude_unset=True)
    async def list_segments() -> list[JsonObject]:
        """List the files of sealed records, oldest first, including erased ones."""
        return [segment.to_json() for segment in await crib.audit.segments.list()]

    @router.post("/seal", response_model=list[SegmentShape], response_model_exclude_unset=True)
    async def seal_audit(change: Annotated[Changing, changes], body: AgeRequest) -> list[JsonObject]:
        """Move old records into sealed files, except the newest hundred. Returns the new files."""
        segments = crib.audit.segments
        sealed = await segments.seal(_before(body), by=change.principal, door=change.door)
        return [segment.to_json() for segment in sealed]

    @router.post("/erase", response_model=list[SegmentShape], response_model_exclude_unset=True)
    async def erase_audit(change: Annotated[Changing, changes], body: AgeRequest) -> list[JsonObject]:
        """Erase files that were sealed that long ago. The chain keeps a record of each and stays valid."""
        erased = await crib.audit.segments.erase(_before(body), by=change.principal, door=change.door)
        return [segment.to_json() for segment in erased]


def _before(body: AgeRequest) -> datetime:
    return datetime.now(UTC) - timedelta(days=body.older_than_days)


def _filters(
    server: _Text = None,
    tool: Annotated[str | None, Query(max_length=500, description="Tool name, or `server/tool`.")] = None,
    agent: _Text = None,
    principal: _Text = None,
    session: _Text = None,
    door: Door | None = None,
    phase: AuditPhase | None = None,
    decision: Verdict | None = None,
    since: Annotated[datetime | None, Query(description="Only from this time on.")] = None,
    until: Annotated[datetime | None, Query(description="Only before this time.")] = None,
    after: Annotated[int | None, Query(ge=0, description="Continue with records older than this one.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    text: Annotated[
        str | None,
        Query(max_length=500, description="Words that must all occur in a record; searches the newest 100,000."),
    ] = None,
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
        text=text,
    )
