"""The trace context of a request: from `_meta` first, then from headers, and only if it is valid."""

import pytest

from toolcrib.model.jsonrpc import trace_of

ONE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-00"


def test_meta_overrides_headers() -> None:
    headers = {b"traceparent": OTHER.encode(), b"tracestate": b"a=1"}
    assert trace_of(headers, {"traceparent": ONE}) == {"traceparent": ONE}
    assert trace_of(headers) == {"traceparent": OTHER, "tracestate": "a=1"}
    assert trace_of({}) is None


@pytest.mark.parametrize(
    "parent", ["00-1", ONE + "\r\nx: y", "ff" + ONE[2:], ONE.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32), 7]
)
def test_invalid_parent_is_ignored(parent: object) -> None:
    assert trace_of({}, {"traceparent": parent}) is None
    assert trace_of({b"traceparent": str(parent).encode()}) is None


def test_state_with_a_line_break_is_dropped() -> None:
    assert trace_of({}, {"traceparent": ONE, "tracestate": "a=1\r\nx: y"}) == {"traceparent": ONE}
