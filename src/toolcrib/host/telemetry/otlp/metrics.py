"""Exports the measured durations as the histograms of the semantic conventions for MCP."""

import time
from collections.abc import Mapping

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    Metric,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from toolcrib.gate.counters import BOUNDS, Series
from toolcrib.host.telemetry.otlp.messages import SCOPE, attributes
from toolcrib.host.telemetry.otlp.spans import CallSpans, OperationKey, operation_attributes


class MetricRequests:
    """Creates export requests with all durations since the start."""

    def __init__(self, spans: CallSpans, resource: Resource) -> None:
        self._spans = spans
        self._resource = resource
        self._since = time.time_ns()

    def take(self) -> bytes | None:
        """Return an export request, or None before the first call."""
        metrics = [
            self._histogram("mcp.server.operation.duration", "Duration of MCP requests.", self._spans.served),
            self._histogram("mcp.client.operation.duration", "Duration of requests to servers.", self._spans.requested),
        ]
        metrics = [metric for metric in metrics if metric.histogram.data_points]
        if not metrics:
            return None
        scope = ScopeMetrics(scope=SCOPE, metrics=metrics)
        return ExportMetricsServiceRequest(
            resource_metrics=[ResourceMetrics(resource=self._resource, scope_metrics=[scope])]
        ).SerializeToString()

    def _histogram(self, name: str, description: str, series: Mapping[OperationKey, Series]) -> Metric:
        now = time.time_ns()
        points = [
            HistogramDataPoint(
                attributes=attributes(operation_attributes(*key)),
                start_time_unix_nano=self._since,
                time_unix_nano=now,
                count=each.count,
                sum=each.seconds,
                bucket_counts=each.buckets,
                explicit_bounds=BOUNDS,
            )
            for key, each in series.items()
        ]
        cumulative = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        histogram = Histogram(data_points=points, aggregation_temporality=cumulative)
        return Metric(name=name, description=description, unit="s", histogram=histogram)
