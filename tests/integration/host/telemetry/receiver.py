"""An OTLP receiver on loopback that decodes requests with OpenTelemetry's own definitions."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from gzip import decompress

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from integration.upstream.http.harness import RawServer, Request, http_response, raw_server


@dataclass(frozen=True)
class Receiver:
    """The requests received so far."""

    raw: RawServer

    @property
    def url(self) -> str:
        """The value of `OTEL_EXPORTER_OTLP_ENDPOINT`."""
        return self.raw.url.removesuffix("/mcp")

    @property
    def spans(self) -> list[Span]:
        """All spans."""
        requests = map(ExportTraceServiceRequest.FromString, self._bodies("traces"))
        return [
            span
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def metrics(self) -> dict[str, Metric]:
        """The latest metrics by name."""
        requests = map(ExportMetricsServiceRequest.FromString, self._bodies("metrics"))
        return {
            metric.name: metric
            for request in requests
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    @property
    def logs(self) -> list[LogRecord]:
        """All log records."""
        requests = map(ExportLogsServiceRequest.FromString, self._bodies("logs"))
        return [
            record
            for request in requests
            for resource in request.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        ]

    def _bodies(self, signal: str) -> list[bytes]:
        return [
            decompress(each.body) if each.headers.get("content-encoding") == "gzip" else each.body
            for each in self.raw.requests
            if each.path == f"/v1/{signal}"
        ]


@asynccontextmanager
async def receiver(*statuses: str) -> AsyncGenerator[Receiver]:
    """Receive everything. The first requests are answered with the given statuses."""
    left = list(statuses)

    async def accept(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(http_response(b"", left.pop(0) if left else "200 OK", "application/x-protobuf"))
        await writer.drain()

    async with raw_server(accept) as raw:
        yield Receiver(raw)
