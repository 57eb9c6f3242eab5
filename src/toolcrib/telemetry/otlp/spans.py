"""Turns calls into spans and durations: the observer of a crib that sends telemetry.

A call is one span of kind server; a call that reached an upstream has a second one of kind client below it, whose id is
sent to the upstream as `traceparent`. What all calls of a tool have in common is built once and merged into each span.

Must never put arguments or results into a span unless the owner has switched that on.
"""

import time
from collections.abc import Callable, Mapping
from random import randbytes
from typing import Final, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from toolcrib.model.json import Json, canonical, is_object, loads, storable
from toolcrib.model.observing import CallEnd, Trace
from toolcrib.model.principals import Principal
from toolcrib.model.tools import CallResult, ToolRef
from toolcrib.telemetry.counters import UNNAMED, CallCounters, SeriesTable, counted_ref
from toolcrib.telemetry.otlp.messages import SCOPE, attributes
from toolcrib.telemetry.otlp.variables import Sampler

Redact = Callable[[Json, bytes], bytes]
"""Returns JSON with its secrets masked, from a value and its canonical JSON."""

MOST_SPANS: Final = 16_384
"""Spans that wait for an export. Further ones are dropped and counted."""
BATCH: Final = 2_048
"""Number of spans that starts an export early."""
_MOST_TEMPLATES: Final = 4_096
_SAMPLED: Final = 1
_TOOL_CALL: Final = "tools/call"


class _OpenSpan(NamedTuple):
    """A call in progress. `client` is the id of the span of its request to the upstream, if there will be one."""

    started: int
    trace_id: bytes
    parent: bytes
    id: bytes
    client: bytes | None
    is_sampled: bool
    state: str


class _Template(NamedTuple):
    """The common part of the spans of one principal's calls of one tool. `principal` keeps its id from being reused."""

    principal: Principal
    server: Span
    client: Span


class OperationKey(NamedTuple):
    """What durations are measured by: the attributes of the metrics."""

    method: str
    ref: ToolRef
    error: str | None


_REST: Final = OperationKey(_TOOL_CALL, UNNAMED, None)


class CallSpans:
    """Observer that traces and measures calls, and counts them too. Without `redact`, spans have no content."""

    def __init__(
        self,
        counters: CallCounters,
        sampler: Sampler,
        *,
        redact: Redact | None = None,
        on_batch: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_batch` is called when enough spans wait for an export."""
        self.served = SeriesTable(_REST)
        """Durations of whole calls, with the wait for an approval."""
        self.requested = SeriesTable(_REST)
        """Durations of requests to upstreams."""
        self.dropped = 0
        self._counters = counters
        self._sampler = sampler
        self._redact = redact
        self._on_batch = on_batch
        self._open: dict[str, _OpenSpan] = {}
        self._templates: dict[tuple[int, ToolRef, str, str], _Template] = {}
        self._pending = ScopeSpans(scope=SCOPE)

    def started(self, call_id: str, trace: Trace | None, *, to_upstream: bool) -> Trace | None:
        """Open the span of a call. Returns the context of its request to the upstream."""
        ids = randbytes(32)
        span, client, trace_id = ids[:8], ids[8:16], ids[16:]
        parent, sampled, state = b"", None, ""
        if trace is not None:
            _, hex_id, hex_parent, flags = trace["traceparent"].split("-")[:4]
            trace_id, parent, sampled = bytes.fromhex(hex_id), bytes.fromhex(hex_parent), int(flags, 16) & _SAMPLED == 1
            state = trace.get("tracestate", "")
        is_sampled = self._sampler.samples(trace_id, sampled)
        self._open[call_id] = _OpenSpan(
            time.time_ns(), trace_id, parent, span, client if to_upstream else None, is_sampled, state
        )
        if not to_upstream:
            return None
        # A trace that is not sent here has no span of the crib; its caller stays the parent.
        sender = client if is_sampled or not parent else parent
        context = {"traceparent": f"00-{trace_id.hex()}-{sender.hex()}-{'01' if is_sampled else '00'}"}
        return {**context, "tracestate": state} if state else context

    def ended(self, call: CallEnd) -> None:
        """Measure a call, and close its span."""
        now = time.time_ns()
        self._counters.ended(call)
        span = self._open.pop(call.call_id, None)
        if span is None:
            return
        is_known = call.tool is not None or call.ending == "refused"
        error = _error_type(call)
        key = OperationKey(_TOOL_CALL if is_known else call.ref.tool, counted_ref(call), error)
        self.served[key].add(max(0, now - span.started) / 1e9)
        was_sent = span.client is not None and call.ending != "refused"
        if was_sent:
            self.requested[key].add(call.duration_ms / 1000)
        if span.is_sampled:
            self._add(call, span, now, error, was_sent)

    def take(self) -> ScopeSpans | None:
        """Return the spans since the last call, if any."""
        if not self._pending.spans:
            return None
        taken, self._pending = self._pending, ScopeSpans(scope=SCOPE)
        return taken

    def _add(self, call: CallEnd, open_: _OpenSpan, now: int, error: str | None, was_sent: bool) -> None:
        waiting = len(self._pending.spans)
        if waiting >= MOST_SPANS:
            self.dropped += 1
            return
        template = self._template(call)
        served = self._pending.spans.add(
            trace_id=open_.trace_id,
            span_id=open_.id,
            parent_span_id=open_.parent,
            trace_state=open_.state,
            start_time_unix_nano=open_.started,
            end_time_unix_nano=now,
        )
        served.MergeFrom(template.server)
        if call.audit_id is not None:
            served.attributes.add(key="toolcrib.audit.id").value.int_value = call.audit_id
        if self._redact is not None and call.tool is not None:
            _add_content(served, call, self._redact)
        _complete(served, call, error)
        if was_sent:
            requested = self._pending.spans.add(
                trace_id=open_.trace_id,
                span_id=open_.client or b"",
                parent_span_id=open_.id,
                trace_state=open_.state,
                start_time_unix_nano=max(open_.started, now - int(call.duration_ms * 1e6)),
                end_time_unix_nano=now,
            )
            requested.MergeFrom(template.client)
            _complete(requested, call, error)
        if waiting < BATCH <= len(self._pending.spans):
            self._on_batch()

    def _template(self, call: CallEnd) -> _Template:
        key = (id(call.principal), counted_ref(call), call.door, call.verdict)
        template = self._templates.get(key)
        if template is None:
            if len(self._templates) >= _MOST_TEMPLATES:
                self._templates.clear()
            template = self._templates[key] = _template(call)
        return template


def trace_request(spans: ScopeSpans, resource: Resource) -> bytes:
    """Return an export request with these spans."""
    return ExportTraceServiceRequest(
        resource_spans=[ResourceSpans(resource=resource, scope_spans=[spans])]
    ).SerializeToString()


def operation_attributes(method: str, ref: ToolRef, error: str | None = None) -> Mapping[str, str | None]:
    """Return the attributes of an operation by the semantic conventions. Unknown tools have no name here."""
    is_tool = method == _TOOL_CALL
    return {
        "mcp.method.name": method,
        "gen_ai.operation.name": "execute_tool" if is_tool else None,
        "gen_ai.tool.name": ref.tool if is_tool and ref != UNNAMED else None,
        "toolcrib.server": ref.server or None,
        "error.type": error,
    }


def _template(call: CallEnd) -> _Template:
    ref, principal = counted_ref(call), call.principal
    method = _TOOL_CALL if call.tool is not None or call.ending == "refused" else ref.tool
    name = f"{method} {ref.tool}" if call.tool is not None else method
    common = operation_attributes(method, ref)
    caller = {
        "toolcrib.door": call.door,
        "toolcrib.principal": principal.name,
        "toolcrib.source": principal.source,
        "toolcrib.decision": call.verdict,
        "gen_ai.agent.id": principal.agent,
    }
    return _Template(
        principal,
        Span(name=name, kind=Span.SPAN_KIND_SERVER, attributes=attributes({**common, **caller})),
        Span(name=name, kind=Span.SPAN_KIND_CLIENT, attributes=attributes(common)),
    )


def _error_type(call: CallEnd) -> str | None:
    if call.ending == "ok":
        return None
    if call.ending == "abandoned":
        return "cancelled"
    return call.code or "tool_error"


def _complete(span: Span, call: CallEnd, error: str | None) -> None:
    """Add what differs between calls with the same template: the name of a prompt, and the error."""
    if call.tool is None and call.ref.tool == "prompts/get" and call.ending != "refused":
        params: Json = loads(call.arguments)
        name: Json = params.get("name") if is_object(params) else None
        if isinstance(name, str):
            span.name = f"{span.name} {name}"
            span.attributes.add(key="gen_ai.prompt.name").value.string_value = name
    if error is not None:
        span.status.code = Status.STATUS_CODE_ERROR
        span.attributes.add(key="error.type").value.string_value = error


def _add_content(span: Span, call: CallEnd, redact: Redact) -> None:
    found: dict[str, str | None] = {"gen_ai.tool.call.arguments": call.arguments.decode()}
    if call.result is not None:
        result = storable(call.result.to_json() if isinstance(call.result, CallResult) else call.result)
        found["gen_ai.tool.call.result"] = redact(result, canonical(result)).decode()
    span.attributes.extend(attributes(found))
