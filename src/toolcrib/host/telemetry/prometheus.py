"""The Prometheus exposition of a crib: its counters of calls and a snapshot of its state.

Nothing is kept in instruments of the library. A scrape reads the crib's own counters, so calls pay nothing for it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from toolcrib.gate.counters import BOUNDS, CallCounters, Series
from toolcrib.model.tools import ToolRef
from toolcrib.model.version import __version__

_TOOL: Final = ("server", "tool")


@dataclass(frozen=True, slots=True)
class CribState:
    """State of a crib at one moment. `sessions` are those with a process or pending work."""

    in_flight: Mapping[str, int] = field(default_factory=dict[str, int])
    servers: Mapping[str, int] = field(default_factory=dict[str, int])
    sessions: Mapping[str, int] = field(default_factory=dict[str, int])
    tools: int = 0
    approvals_pending: int = 0
    audit_records: int = 0
    feed_events: int = 0
    is_stopped: bool = False


def render(counters: CallCounters, state: CribState, accept: str = "") -> tuple[bytes, str]:
    """Return the exposition and its content type, in the text format or, if `accept` allows it, OpenMetrics."""
    registry = CollectorRegistry()
    registry.register(_CribCollector(counters, state))
    ProcessCollector(registry=registry)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _CribCollector(Collector):
    """Translates counters and state to metric families."""

    def __init__(self, counters: CallCounters, state: CribState) -> None:
        self._counters = counters
        self._state = state

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("toolcrib", "The running version.", {"version": __version__})
        yield from self._calls()
        yield from self._gauges()
        yield CounterMetricFamily(
            "toolcrib_audit_records", "Records in the audit chain.", value=self._state.audit_records
        )
        yield CounterMetricFamily("toolcrib_feed_events", "Events published.", value=self._state.feed_events)

    def _calls(self) -> Iterator[Metric]:
        calls = CounterMetricFamily("toolcrib_calls", "Calls by outcome.", labels=(*_TOOL, "outcome"))
        durations: dict[ToolRef, Series] = {}
        for (ref, ending), series in self._counters.calls.items():
            calls.add_metric((*ref, ending), series.count)
            if ending != "refused":
                durations.setdefault(ref, Series()).merge(series)
        yield calls
        yield _durations(durations)
        refused = CounterMetricFamily("toolcrib_calls_refused", "Refused calls by error code.", labels=("code",))
        for code, count in self._counters.refused.items():
            refused.add_metric((code,), count)
        yield refused

    def _gauges(self) -> Iterator[Metric]:
        state = self._state
        yield _gauge("toolcrib_calls_in_flight", "Calls in flight.", "server", state.in_flight)
        yield _gauge("toolcrib_servers", "Configured servers.", "state", state.servers)
        yield _gauge("toolcrib_sessions", "Sessions with a process or pending work.", "state", state.sessions)
        yield GaugeMetricFamily("toolcrib_tools", "Tools in the catalog.", value=state.tools)
        yield GaugeMetricFamily("toolcrib_approvals_pending", "Pending approvals.", value=state.approvals_pending)
        yield GaugeMetricFamily("toolcrib_stopped", "1 while everything is stopped.", value=state.is_stopped)


def count(states: Iterator[str]) -> Mapping[str, int]:
    """Return how often each state occurs."""
    return Counter(states)


def _durations(by_ref: Mapping[ToolRef, Series]) -> Metric:
    family = HistogramMetricFamily(
        "toolcrib_call_duration_seconds", "Duration of calls that ran, without waiting for approval.", labels=_TOOL
    )
    bounds = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
    for ref, series in by_ref.items():
        family.add_metric(ref, list(zip(bounds, series.cumulative(), strict=True)), series.seconds)
    return family


def _gauge(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=(label,))
    for value, number in values.items():
        family.add_metric((value,), number)
    return family
