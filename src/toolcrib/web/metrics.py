"""`/metrics`: the Prometheus exposition, for the owner. The guard answers all other principals with 404."""

from starlette.requests import Request
from starlette.responses import Response

from toolcrib.host import Crib
from toolcrib.host.telemetry.prometheus import CribState, count, render


class MetricsPage:
    """The exposition of one crib."""

    def __init__(self, crib: Crib) -> None:
        self._crib = crib

    async def show(self, request: Request) -> Response:
        """Return the current metrics."""
        body, content_type = render(self._crib.counters, await self._state(), request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    async def _state(self) -> CribState:
        crib = self._crib
        return CribState(
            in_flight=count(ref.server for ref in crib.gate.in_flight),
            servers=count(status.state for status in await crib.upstreams.list()),
            sessions=count(session.state for session in crib.sessions.active()),
            tools=len(crib.catalog.snapshot.tools),
            approvals_pending=crib.approvals.pending,
            audit_records=crib.audit.records,
            feed_events=crib.feed.published,
            is_stopped=crib.stop_switch.is_stopped,
        )
