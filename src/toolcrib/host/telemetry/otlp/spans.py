"""Turns calls into spans and durations: the observer of a crib that sends telemetry.

A call is one span of kind server; a call that reached an upstream has a second one of kind client below it, whose id is
sent to the upstream as `traceparent`. What all calls of a tool have in common is encoded once.

Must never put arguments or results into a span unless the owner has switched that on.
"""

import time
from collections.abc import Callable, Mapping
from random import getrandbits
from typing import Final, NamedTuple, TypeAlias

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from toolcrib.gate.counters import UNNAMED, CallCounters, SeriesTable, counted_ref
from toolcrib.host.telemetry.otlp.messages import attributes
from toolcrib.host.telemetry.otlp.variables import Sampler
from toolcrib.host.telemetry.otlp.wire import audit_attribute, fields, span_bytes
from toolcrib.model.json import Json, canonical, is_object, loads, storable
from toolcrib.model.observing import CallEnd, Trace
from toolcrib.model.principals import Principal
from toolcrib.model.tools import CallResult, ProtocolFault, ToolRef

Redact = Callable[[Json, bytes], bytes]
"""Returns JSON with its secrets masked, from a value and its canonical JSON."""

MOST_SPANS: Final = 16_384
"""Spans that wait for an export. Further ones are dropped and counted."""
BATCH: Final = 2_048
"""Number of spans that starts an export early."""
_MOST_TEMPLATES: Final = 4_096
_SAMPLED: Final = 1
_TOOL_CALL: Final = "tools/call"
_PROMPT: Final = "prompts/get"


_OpenSpan: TypeAlias = tuple[int, bytes, bytes, bytes, bytes | None, bool, str]
"""A call in progress: start, trace, parent, id, id of the request to the upstream if any, whether it is sampled, and
the trace state. A named tuple would take a tenth of the time that is spent on a call here."""


class OperationKey(NamedTuple):
    """What durations are measured by: the attributes of the metrics."""

    method: str
    ref: ToolRef
    error: str | None


class _Template(NamedTuple):
    """What the calls of one tool by one principal have in common: the key of their durations, and their spans, encoded.

    `principal` keeps its id from being reused.
    """

    principal: Principal
    key: OperationKey
    server: bytes
    client: bytes


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
        self._all_new = sampler.share >= 1
        self._redact = redact
        self._on_batch = on_batch
        self._open: dict[str, _OpenSpan] = {}
        self._templates: dict[tuple[int, ToolRef, str, str], _Template] = {}
        self._pending: list[bytes] = []

    def started(self, call_id: str, trace: Trace | None, *, to_upstream: bool) -> Trace | None:
        """Open the span of a call. Returns the context of its request to the upstream."""
        ids = getrandbits(256).to_bytes(32)
        span, client, trace_id = ids[:8], ids[8:16], ids[16:]
        parent, sampled, state = b"", None, ""
        if trace is not None:
            _, hex_id, hex_parent, flags = trace["traceparent"].split("-")[:4]
            trace_id, parent, sampled = bytes.fromhex(hex_id), bytes.fromhex(hex_parent), int(flags, 16) & _SAMPLED == 1
            state = trace.get("tracestate", "")
        is_sampled = (self._all_new and trace is None) or self._sampler.samples(trace_id, sampled)
        sent = client if to_upstream else None
        self._open[call_id] = time.time_ns(), trace_id, parent, span, sent, is_sampled, state
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
        template = self._templates.get((id(call.principal), call.ref, call.door, call.verdict))
        if template is None or call.tool is None:
            template = self._make(call)
        error, key = None, template.key
        if call.ending != "ok":
            error = _error_type(call)
            key = key._replace(error=error)
        self.served[key].add(max(0, now - span[0]) / 1e9)
        was_sent = span[4] is not None and call.ending != "refused"
        if was_sent:
            self.requested[key].add(call.duration_ms / 1000)
        if span[5]:
            self._add(call, template, span, now, error, was_sent)

    def take(self) -> list[bytes]:
        """Return the encoded spans since the last call."""
        taken, self._pending = self._pending, []
        return taken

    def _add(
        self, call: CallEnd, template: _Template, span: _OpenSpan, now: int, error: str | None, was_sent: bool
    ) -> None:
        pending = self._pending
        waiting = len(pending)
        if waiting >= MOST_SPANS:
            self.dropped += 1
            return
        started, trace_id, parent, id, client, _, state = span
        own = b""
        if error is not None or state or call.tool is None:
            own = _own_fields(call, state, error)
        served = span_bytes(template.server, trace_id, id, parent, started, now) + own
        if call.audit_id is not None:
            served += audit_attribute(call.audit_id)
        if self._redact is not None:
            served += _content(call, self._redact) if call.tool is not None else _resource(call)
        pending.append(served)
        if was_sent and client is not None:
            began = max(started, now - int(call.duration_ms * 1e6))
            pending.append(span_bytes(template.client, trace_id, client, id, began, now) + own)
        if waiting < BATCH <= len(pending):
            self._on_batch()

    def _make(self, call: CallEnd) -> _Template:
        """Return the template of a call, and keep it if the call names a tool: other names are unbounded."""
        ref, principal = counted_ref(call), call.principal
        method = _TOOL_CALL if call.tool is not None or call.ending == "refused" else ref.tool
        name = f"{method} {ref.tool}" if call.tool is not None else method
        key = OperationKey(method, ref, None)
        common = operation_attributes(*key)
        caller = {
            "toolcrib.door": call.door,
            "toolcrib.principal": principal.name,
            "toolcrib.source": principal.source,
            "toolcrib.decision": call.verdict,
            "gen_ai.agent.id": principal.agent,
        }
        template = _Template(
            principal,
            key,
            fields(Span(name=name, kind=Span.SPAN_KIND_SERVER, attributes=attributes({**common, **caller}))),
            fields(Span(name=name, kind=Span.SPAN_KIND_CLIENT, attributes=attributes(common))),
        )
        if call.tool is not None:
            if len(self._templates) >= _MOST_TEMPLATES:
                self._templates.clear()
            self._templates[id(principal), call.ref, call.door, call.verdict] = template
        return template


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


def _error_type(call: CallEnd) -> str:
    if call.ending == "abandoned":
        return "cancelled"
    fault = _fault(call)
    return str(fault.code) if fault is not None else call.code or "tool_error"


def _fault(call: CallEnd) -> ProtocolFault | None:
    """Return the protocol error that the server returned instead of a result."""
    return call.result.fault if isinstance(call.result, CallResult) else None


def _own_fields(call: CallEnd, state: str, error: str | None) -> bytes:
    """Return the encoded fields that few spans have: the trace state, the name of a prompt, and the error."""
    span = Span(trace_state=state)
    if call.tool is None and call.ref.tool == _PROMPT and call.ending != "refused":
        params: Json = loads(call.arguments)
        name: Json = params.get("name") if is_object(params) else None
        if isinstance(name, str):
            span.name = f"{_PROMPT} {name}"
            span.attributes.extend(attributes({"gen_ai.prompt.name": name}))
    if error is not None:
        span.status.code = Status.STATUS_CODE_ERROR
        status = error if _fault(call) is not None else None
        span.attributes.extend(attributes({"error.type": error, "rpc.response.status_code": status}))
    return fields(span)


def _resource(call: CallEnd) -> bytes:
    """Return the URI of a read resource, which is an argument and may be secret."""
    params: Json = loads(call.arguments)
    uri: Json = params.get("uri") if is_object(params) else None
    return fields(Span(attributes=attributes({"mcp.resource.uri": uri if isinstance(uri, str) else None})))


def _content(call: CallEnd, redact: Redact) -> bytes:
    found: dict[str, str | None] = {"gen_ai.tool.call.arguments": call.arguments.decode()}
    if call.result is not None:
        result = storable(call.result.to_json() if isinstance(call.result, CallResult) else call.result)
        found["gen_ai.tool.call.result"] = redact(result, canonical(result)).decode()
    return fields(Span(attributes=attributes(found)))
