"""Exports what the crib logs, with secrets masked as in the log file.

Must never export what sending telemetry itself logs: each export would cause the next one.
"""

import logging
import time
from collections import deque
from typing import Final

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from toolcrib.host.telemetry.otlp.messages import SCOPE, attributes

LOGGER: Final = "toolcrib"
"""The logger whose records are exported, with all below it."""
MOST_RECORDS: Final = 2_048
"""Records that wait for an export. Older ones are dropped."""
_OWN: Final = "toolcrib.host.telemetry"
_SEVERITIES: Final = (
    (logging.CRITICAL, SeverityNumber.SEVERITY_NUMBER_FATAL),
    (logging.ERROR, SeverityNumber.SEVERITY_NUMBER_ERROR),
    (logging.WARNING, SeverityNumber.SEVERITY_NUMBER_WARN),
    (logging.INFO, SeverityNumber.SEVERITY_NUMBER_INFO),
)


class LogRequests(logging.Handler):
    """Handler that keeps records until they are exported. Filters of the handler mask them first."""

    def __init__(self, resource: Resource) -> None:
        super().__init__()
        self._resource = resource
        self._pending: deque[LogRecord] = deque(maxlen=MOST_RECORDS)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        if record.name.startswith(_OWN):
            return
        code: object = getattr(record, "code", None)
        self._pending.append(
            LogRecord(
                time_unix_nano=int(record.created * 1e9),
                observed_time_unix_nano=time.time_ns(),
                severity_number=_severity(record.levelno),
                severity_text=record.levelname,
                body=AnyValue(string_value=record.getMessage()),
                attributes=attributes(
                    {
                        "code.namespace": record.name,
                        "error.type": code if isinstance(code, str) else None,
                        "exception.stacktrace": record.exc_text,
                    }
                ),
            )
        )

    def take(self) -> bytes | None:
        """Return an export request with the records since the last one, if any."""
        if not self._pending:
            return None
        records = [self._pending.popleft() for _ in range(len(self._pending))]
        scope = ScopeLogs(scope=SCOPE, log_records=records)
        return ExportLogsServiceRequest(
            resource_logs=[ResourceLogs(resource=self._resource, scope_logs=[scope])]
        ).SerializeToString()


def _severity(level: int) -> "SeverityNumber.ValueType":
    for lowest, severity in _SEVERITIES:
        if level >= lowest:
            return severity
    return SeverityNumber.SEVERITY_NUMBER_DEBUG
