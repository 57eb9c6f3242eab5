"""Counting recorded calls: sums, steps, filters and quantiles."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.gate.audit.statistics import CallFilter, CallStatistics, Tally

START = datetime(2026, 11, 17, tzinfo=UTC)


def record(hour: float = 0, tool: str = "lab/echo", **more: Any) -> dict[str, Any]:
    server, _, name = tool.partition("/")
    at = (START + timedelta(hours=hour)).isoformat(timespec="milliseconds")
    who = {"kind": "owner", "name": "owner", "agent": more.pop("agent", None), "cwd": more.pop("cwd", None)}
    return {"phase": "outcome", "at": at, "server": server, "tool": name, "principal": who, "durationMs": 3.0} | more


def counted(*records: dict[str, Any]) -> CallStatistics:
    statistics = CallStatistics()
    for each in records:
        statistics.add(each)
    return statistics


def test_every_call_is_in_exactly_one_step_and_empty_steps_are_there_too() -> None:
    statistics = counted(record(0), record(0.5, isError=True), record(5), record(23))
    series = statistics.series(START, START + timedelta(hours=23), 6)
    assert [(at.hour, tally.calls, tally.errors) for at, tally in series] == [
        (0, 3, 1),
        (6, 0, 0),
        (12, 0, 0),
        (18, 1, 0),
    ]


def test_calls_are_selected_by_server_agent_and_project() -> None:
    statistics = counted(record(agent="a"), record(tool="lab/shout", cwd="/p"), record(tool="labs/echo"))
    for wanted, calls in (
        (CallFilter(), 3),
        (CallFilter(server="lab"), 2),
        (CallFilter(tool="lab/shout"), 1),
        (CallFilter(agent="a"), 1),
        (CallFilter(project="/p"), 1),
        (CallFilter(agent="a", project="/p"), 0),
    ):
        assert statistics.total(START, wanted).calls == calls


def test_intents_changes_of_settings_and_damaged_records_are_not_calls() -> None:
    statistics = counted(
        record(phase="intent"), record(tool="toolcrib/rules.add"), {"damaged": True, "id": 1}, record(at="soon")
    )
    assert statistics.total(START).calls == 0


def test_the_most_called_come_first_and_old_hours_are_forgotten() -> None:
    statistics = counted(record(0), record(1, "lab/shout"), record(2, "lab/shout", agent="a"))
    assert [name for name, _ in statistics.by_tool(START)] == ["lab/shout", "lab/echo"]
    assert {name: tally.calls for name, tally in statistics.by_caller(START)} == {"owner": 2, "a": 1}
    statistics.forget(START + timedelta(hours=1))
    assert statistics.total(START).calls == 2


@given(st.lists(st.floats(0.05, 1e6), min_size=1, max_size=200), st.sampled_from([0.5, 0.95]))
def test_a_quantile_is_within_a_class_of_the_exact_one(durations: list[float], share: float) -> None:
    statistics = counted(*(record(durationMs=each) for each in durations))
    exact = sorted(durations)[min(len(durations) - 1, max(0, -(-int(share * 1000) * len(durations) // 1000) - 1))]
    found = statistics.total(START).quantile(share)
    assert found is not None
    assert exact / 1.13 <= found <= exact * 1.13


def test_without_calls_there_is_no_quantile() -> None:
    assert Tally().quantile(0.5) is None


def test_names_of_tools_that_do_not_exist_are_counted_as_one() -> None:
    names = [f"lab/made-up-{number}" for number in range(3)]
    statistics = counted(record(), *(record(tool=name, refused="tool.unknown", durationMs=0.0) for name in names))
    assert [name for name, _ in statistics.by_tool(START)] == ["lab/echo"]
    assert statistics.total(START).calls == 4


def test_calls_that_did_not_run_do_not_make_the_others_look_faster() -> None:
    refused = record(refused="policy.denied", definitionHash="a", durationMs=0.0)
    invalid = record(definitionHash="a", durationMs=0.0)
    found = counted(record(durationMs=100.0), refused, invalid).total(START).quantile(0.5)
    assert found is not None and found > 80
