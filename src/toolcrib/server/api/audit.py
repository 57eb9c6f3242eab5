"""`/api/audit`: what was called and who allowed it, and whether the record is whole."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import StreamingResponse

from toolcrib.audit import Filters
from toolcrib.audit.export import export
from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.policy import Verdict
from toolcrib.model.tools import ToolRef
from toolcrib.principals import Door
from toolcrib.server.api.shapes import AuditPhase, AuditRecordShape, VerificationShape

_LINES = "application/x-ndjson"
_After = Annotated[int, Query(ge=0, le=2**62, description="Begin after this record.")]
_Upto = Annotated[int | None, Query(ge=1, le=2**62, description="End with this record.")]
_Text = Annotated[str | None, Query(max_length=500)]


def routes(crib: Crib) -> APIRouter:
    """The routes, on this crib."""
    router = APIRouter(prefix="/api/audit", tags=["audit"])

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
        """The records that are in the database, the oldest first, each a line that proves itself by its hash."""
        await crib.store.caught_up()
        return StreamingResponse(export(crib.store, after=after, upto=upto), media_type=_LINES)

    return router


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
