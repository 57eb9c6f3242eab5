"""Calls to record in tests of the audit."""

from typing import Any

from toolcrib.gate.audit.audit import Audit
from toolcrib.gate.audit.call_records import CallRecord
from toolcrib.model.json import canonical
from toolcrib.model.policy import Decision, DecisionStep, Verdict
from toolcrib.model.principals import Principal
from toolcrib.model.tools import Tool, ToolRef

OWNER = Principal("owner", "owner", "cli")
FORECAST = Tool(ToolRef("weather", "forecast"), "Forecast for a city.", {"type": "object", "properties": {}})


def call(
    audit: Audit,
    number: int = 1,
    *,
    principal: Principal = OWNER,
    ref: ToolRef = FORECAST.ref,
    tool: Tool | None = FORECAST,
    arguments: dict[str, Any] | None = None,
    verdict: Verdict = "allow",
    door: str = "mcp",
    approval: str | None = None,
) -> CallRecord:
    """Return the record of a call."""
    given = arguments or {}
    decision = Decision(verdict, ref, (DecisionStep("mode", True, "allow", "because"),), ("rule-1",))
    return audit.call_records.create(
        f"call-{number}", door, principal, ref, tool, given, canonical(given), decision, approval=approval
    )


async def make_calls(audit: Audit, count: int) -> None:
    """Record successful calls, two records each."""
    for number in range(count):
        record = call(audit, number)
        await record.intent()
        await record.outcome(is_error=False, duration_ms=1.5)
