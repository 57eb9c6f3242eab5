"""Counts and traces calls: counters for `/metrics`, and OpenTelemetry over OTLP with the extra `otel`.

Both observe the gate through `model.observing` and never take part in a call.
"""
