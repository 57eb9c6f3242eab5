"""Interface between the gate and what counts or traces its calls.

The gate knows nothing of metrics or traces. It reports the start and the end of every recorded call to one observer.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol, TypeAlias

from toolcrib.model.json import JsonObject
from toolcrib.model.principals import Principal
from toolcrib.model.tools import CallResult, Tool, ToolRef

Trace: TypeAlias = Mapping[str, str]
"""W3C trace context by field name: `traceparent`, and `tracestate` if there is one."""
CallEnding = Literal["ok", "error", "refused", "abandoned"]
"""How a call ended: with a result, with an error, without running, or by cancellation."""


class CallEnd(NamedTuple):
    """The end of a call.

    `tool` is None for reads of prompts and resources, where `ref.tool` is the method, and for unknown tools. `code` is
    the error code of a refused call. `audit_id` is the number of its audit record, if it was stored. `duration_ms` is
    the run alone. `arguments` are the recorded arguments as JSON, with secrets masked; `result` is not masked.
    """

    call_id: str
    door: str
    principal: Principal
    ref: ToolRef
    tool: Tool | None
    verdict: str
    ending: CallEnding
    code: str | None
    audit_id: int | None
    duration_ms: float
    arguments: bytes
    result: CallResult | JsonObject | None


class CallObserver(Protocol):
    """Observes calls. Runs on the path of every call, so it must be fast, and must never raise or wait."""

    def started(self, call_id: str, trace: Trace | None, *, to_upstream: bool) -> Trace | None:
        """Observe the start of a call. `trace` is its caller's; returns the trace to send to the server."""
        ...

    def ended(self, call: CallEnd) -> None:
        """Observe the end of a call. A call that was refused elsewhere ends without a start."""
        ...
