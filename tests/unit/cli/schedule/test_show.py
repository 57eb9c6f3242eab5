"""Times and spans as users type them for a schedule."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as some

from toolcrib.cli.schedule.show import moment, seconds_of
from toolcrib.model.errors import InvalidRequest


@pytest.mark.parametrize(
    ("span", "seconds"), [("90s", 90), ("30m", 1_800), ("2h", 7_200), ("1d", 86_400), ("1h30m", 5_400)]
)
def test_span_is_one_or_more_numbers_with_units(span: str, seconds: int) -> None:
    assert seconds_of(span) == seconds


@given(some.text(max_size=10))
def test_invalid_span_is_rejected_with_an_example(text: str) -> None:
    try:
        assert seconds_of(text) >= 0
    except InvalidRequest as error:
        assert "2h" in str(error.hint)


def test_time_without_an_offset_is_local() -> None:
    assert datetime.fromisoformat(moment("2026-11-16T09:00")) == datetime(2026, 11, 16, 9).astimezone()
    assert datetime.fromisoformat(moment("2026-11-16T09:00+05:00")).utctimetuple().tm_hour == 4
    with pytest.raises(InvalidRequest, match="not a date and time"):
        moment("tomorrow")
