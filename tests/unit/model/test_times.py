"""Times and durations as text."""

import pytest

from toolcrib.model.times import duration


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0.0, "0 ms"),
        (0.03, "< 0.1 ms"),
        (0.42, "0.4 ms"),
        (9.94, "9.9 ms"),
        (9.96, "10 ms"),
        (12.4, "12 ms"),
        (1_500, "1.5 s"),
    ],
)
def test_short_durations_are_not_shown_as_zero(milliseconds: float, text: str) -> None:
    assert duration(milliseconds) == text
