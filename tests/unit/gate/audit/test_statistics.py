"""Statistics of recorded calls: sums, steps, filters and quantiles."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.gate.audit.statistics import CallFilter, CallStatistics, Tally

START = datetime(2026, 11, 17, tzinfo=UTC)


def record(hour: float = 0, tool: str = "lab/echo", **more: Any) -> dict[str, Any]:
    server, _, name = tool.partition("/")
    at = (START + timedelta(hours=hour)).isoformat(timespec="milliseconds")
    principal = {"kind": "owner", "name": "owner", "agent": more.pop("agent", None), "cwd": more.pop("cwd", None)}
    return {
        "phase": "outcome",
        "at": at,
        "server": server,
        "tool": name,
        "principal": principal,
        "durationMs": 3.0,
    } | more


def statistics_of(*records: dict[str, Any]) -> CallStatistics:
    statistics = CallStatistics()
    for each in records:
        statistics.add(each)
    return statistics


def test_each_call_is_in_one_step_and_empty_steps_are_included() -> None:
    statistics = statistics_of(record(0), record(0.5, isError=True), record(5), record(23))
    series = statistics.series(START, START + timedelta(hours=23), 6)
    assert [(at.hour, tally.calls, tally.errors) for at, tally in series] == [
        (0, 3, 1),
        (6, 0, 0),
        (12, 0, 0),
        (18, 1, 0),
    ]


def test_calls_are_selected_by_server_agent_and_project() -> None:
    statistics = statistics_of(record(agent="a"), record(tool="lab/shout", cwd="/p"), record(tool="labs/echo"))
    for wanted, calls in (
        (CallFilter(), 3),
        (CallFilter(server="lab"), 2),
        (CallFilter(tool="lab/shout"), 1),
        (CallFilter(agent="a"), 1),
        (CallFilter(project="/p"), 1),
        (CallFilter(agent="a", project="/p"), 0),
    ):
        assert statistics.total(START, wanted).calls == calls


def test_intents_setting_changes_and_damaged_records_are_not_calls() -> None:
    statistics = statistics_of(
        record(phase="intent"), record(tool="toolcrib/rules.add"), {"damaged": True, "id": 1}, record(at="soon")
    )
    assert statistics.total(START).calls == 0


def test_most_called_tool_comes_first_and_old_hours_are_forgotten() -> None:
    statistics = statistics_of(record(0), record(1, "lab/shout"), record(2, "lab/shout", agent="a"))
    assert [name for name, _ in statistics.by_tool(START)] == ["lab/shout", "lab/echo"]
    assert {name: tally.calls for name, tally in statistics.by_caller(START)} == {"owner": 2, "a": 1}
    statistics.forget(START + timedelta(hours=1))
    assert statistics.total(START).calls == 2


@given(st.lists(st.floats(0.05, 1e6), min_size=1, max_size=200), st.sampled_from([0.5, 0.95]))
def test_quantile_is_within_one_class_of_the_exact_value(durations: list[float], share: float) -> None:
    statistics = statistics_of(*(record(durationMs=each) for each in durations))
    exact = sorted(durations)[min(len(durations) - 1, max(0, -(-int(share * 1000) * len(durations) // 1000) - 1))]
    found = statistics.total(START).quantile(share)
    assert found is not None
    assert exact / 1.13 <= found <= exact * 1.13


def test_quantile_of_no_calls_is_none() -> None:
    assert Tally().quantile(0.5) is None


def test_unknown_tools_are_counted_but_not_listed() -> None:
    names = [f"lab/made-up-{number}" for number in range(3)]
    statistics = statistics_of(record(), *(record(tool=name, refused="tool.unknown", durationMs=0.0) for name in names))
    assert [name for name, _ in statistics.by_tool(START)] == ["lab/echo"]
    assert statistics.total(START).calls == 4


def test_calls_that_did_not_run_do_not_affect_durations() -> None:
    refused = record(refused="policy.denied", definitionHash="a", durationMs=0.0)
    invalid = record(definitionHash="a", durationMs=0.0)
    found = statistics_of(record(durationMs=100.0), refused, invalid).total(START).quantile(0.5)
    assert found is not None and found > 80
