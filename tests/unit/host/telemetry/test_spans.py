"""Spans of calls, decoded with OpenTelemetry's own definitions."""

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from toolcrib.gate.counters import CallCounters
from toolcrib.host.telemetry.otlp.messages import resource_of
from toolcrib.host.telemetry.otlp.spans import CallSpans
from toolcrib.host.telemetry.otlp.variables import Sampler
from toolcrib.host.telemetry.otlp.wire import trace_request
from toolcrib.model.observing import CallEnd
from toolcrib.model.principals import Principal
from toolcrib.model.tools import CallResult, ProtocolFault, ToolRef
from unit.host.telemetry.calls import call_end

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CALLER_TRACE = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "rojo=1"}


def read(spans: CallSpans) -> list[Span]:
    """Return the spans that an export would send."""
    (of_resource,) = ExportTraceServiceRequest.FromString(
        trace_request(spans.take(), resource_of({"service.name": "crib"}))
    ).resource_spans
    assert {each.key: each.value.string_value for each in of_resource.resource.attributes}["service.name"] == "crib"
    return list(of_resource.scope_spans[0].spans)


def values(span: Span) -> dict[str, str | int]:
    """Return the attributes of a span."""
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


def trace_call(call: CallEnd, spans: CallSpans | None = None, *, to_upstream: bool = False) -> list[Span]:
    """Return the spans of one call."""
    spans = spans or CallSpans(CallCounters(), Sampler())
    spans.started(call.call_id, None, to_upstream=to_upstream)
    spans.ended(call)
    return read(spans)


def test_upstream_call_continues_the_trace_with_a_server_and_a_client_span() -> None:
    spans = CallSpans(CallCounters(), Sampler())
    sent = spans.started("c-1", CALLER_TRACE, to_upstream=True)
    spans.ended(call_end(principal=Principal("token", "cursor", "ide", agent="reviewer")))
    served, requested = read(spans)
    assert sent == {"traceparent": f"00-{TRACE}-{requested.span_id.hex()}-01", "tracestate": "rojo=1"}
    assert served.trace_id.hex() == requested.trace_id.hex() == TRACE
    assert (served.parent_span_id.hex(), requested.parent_span_id) == (PARENT, served.span_id)
    assert (served.kind, requested.kind) == (Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CLIENT)
    assert served.name == requested.name == "tools/call search"
    assert served.trace_state == "rojo=1"
    assert served.start_time_unix_nano <= requested.start_time_unix_nano <= served.end_time_unix_nano
    assert values(served) == {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "search",
        "gen_ai.agent.id": "reviewer",
        "toolcrib.server": "notes",
        "toolcrib.door": "mcp",
        "toolcrib.principal": "cursor",
        "toolcrib.source": "ide",
        "toolcrib.decision": "allow",
        "toolcrib.audit.id": 7,
    }
    assert "rain" not in str(served) + str(requested)


@pytest.mark.parametrize("number", [0, 127, 128, 300, 2**31, 2**53])
def test_audit_number_of_any_size_is_an_attribute(number: int) -> None:
    (span,) = trace_call(call_end(audit_id=number))
    assert values(span)["toolcrib.audit.id"] == number


def test_call_without_an_upstream_is_one_span() -> None:
    (span,) = trace_call(call_end())
    assert span.kind == Span.SPAN_KIND_SERVER
    assert not span.parent_span_id


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"ending": "error"}, "tool_error"),
        ({"ending": "abandoned"}, "cancelled"),
        ({"ending": "error", "code": "audit.unavailable"}, "audit.unavailable"),
    ],
)
def test_failed_call_has_the_error_on_both_spans(change: dict[str, str], error: str) -> None:
    for span in trace_call(call_end(**change), to_upstream=True):
        assert span.status.code == Status.STATUS_CODE_ERROR
        assert values(span)["error.type"] == error


def test_protocol_error_of_a_server_has_its_code() -> None:
    result = CallResult((), is_error=True, fault=ProtocolFault(-32602, "no such row"))
    for span in trace_call(call_end(ending="error", result=result), to_upstream=True):
        assert values(span)["error.type"] == values(span)["rpc.response.status_code"] == "-32602"
        assert "no such row" not in str(span)


def test_uri_of_a_resource_is_sent_only_with_content() -> None:
    read = call_end(ref=ToolRef("notes", "resources/read"), tool=None, arguments=b'{"uri":"notes://1"}')
    (span,) = trace_call(read)
    assert "notes://1" not in str(span)
    (span,) = trace_call(read, CallSpans(CallCounters(), Sampler(), redact=lambda _, encoded: encoded))
    assert values(span)["mcp.resource.uri"] == "notes://1"
    assert span.name == "resources/read"


def test_refused_call_of_an_unknown_tool_has_no_client_span_and_no_name() -> None:
    call = call_end(ref=ToolRef("made", "up"), tool=None, ending="refused", code="tool.unknown")
    (span,) = trace_call(call, to_upstream=True)
    assert span.name == "tools/call"
    assert values(span)["error.type"] == "tool.unknown"
    assert not {"gen_ai.tool.name", "toolcrib.server"} & values(span).keys()


def test_read_of_a_prompt_names_its_method_and_prompt() -> None:
    (span,) = trace_call(call_end(ref=ToolRef("notes", "prompts/get"), tool=None, arguments=b'{"name":"review"}'))
    assert span.name == "prompts/get review"
    assert values(span)["gen_ai.prompt.name"] == "review"
    assert "gen_ai.operation.name" not in values(span)


def test_content_is_sent_masked_only_when_switched_on() -> None:
    def redact(value: object, encoded: bytes) -> bytes:
        return encoded.replace(b"found", b"***")

    (span,) = trace_call(call_end(), CallSpans(CallCounters(), Sampler(), redact=redact))
    assert values(span)["gen_ai.tool.call.arguments"] == '{"query":"rain"}'
    assert "***" in str(values(span)["gen_ai.tool.call.result"])
    (span,) = trace_call(call_end(result=CallResult.text("found")))
    assert not any(name.startswith("gen_ai.tool.call") for name in values(span))


def test_unsampled_trace_keeps_its_parent_and_sends_no_span() -> None:
    spans = CallSpans(CallCounters(), Sampler())
    sent = spans.started("c-1", {"traceparent": f"00-{TRACE}-{PARENT}-00"}, to_upstream=True)
    spans.ended(call_end())
    assert sent == {"traceparent": f"00-{TRACE}-{PARENT}-00"}
    assert not spans.take()
    assert next(iter(spans.served.values())).count == 1
