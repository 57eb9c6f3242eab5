"""OpenTelemetry over OTLP/HTTP: traces, metrics and logs by the semantic conventions for MCP and GenAI.

Messages are built with OpenTelemetry's own protobuf definitions, not with its SDK: a span of the SDK costs 60 µs from
start to export, half of what the whole call costs; one built here costs a tenth of that. It also leaves reading the
`OTEL_*` variables to the crib's settings.
"""
