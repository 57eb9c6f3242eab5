"""Counters of calls: their labels, and a bound on the number of series."""

import pytest

from toolcrib.gate import counters as module
from toolcrib.gate.counters import UNNAMED, CallCounters
from toolcrib.model.tools import ToolRef
from unit.host.telemetry.calls import SEARCH, call_end


def test_call_is_counted_by_tool_and_outcome_in_its_bucket() -> None:
    counters = CallCounters()
    counters.ended(call_end())
    counters.ended(call_end(ending="error", duration_ms=400_000.0))
    assert counters.calls[SEARCH.ref, "ok"].cumulative() == [0, 0, *[1] * 13]
    assert counters.calls[SEARCH.ref, "error"].cumulative() == [*[0] * 14, 1]


def test_refused_call_of_an_unknown_tool_is_counted_by_code_only() -> None:
    counters = CallCounters()
    counters.ended(call_end(ref=ToolRef("made", "up"), tool=None, ending="refused", code="tool.unknown"))
    assert list(counters.calls) == [(UNNAMED, "refused")]
    assert counters.refused == {"tool.unknown": 1}


def test_names_beyond_the_limit_share_one_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SERIES", 2)
    counters = CallCounters()
    for number in range(5):
        counters.ended(call_end(ref=ToolRef("notes", str(number))))
    assert len(counters.calls) == 3
    assert counters.calls[UNNAMED, "ok"].count == 3


def test_trace_of_the_caller_is_passed_on_unchanged() -> None:
    trace = {"traceparent": "00-1"}
    assert CallCounters().started("c-1", trace, to_upstream=True) is trace
