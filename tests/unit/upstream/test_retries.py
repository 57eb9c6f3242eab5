"""Retries of a failed server: growing pauses, a limit, and a reset after a stable connection."""

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.upstream.http.streamable import pause_before_retry
from toolcrib.upstream.retries import LONGEST_DELAY, Retries, Timing

TIMING = Timing()


@given(st.lists(st.tuples(st.floats(0, 500), st.floats(0, 1), st.booleans()), min_size=1, max_size=40))
def test_pause_before_a_retry_is_within_bounds(
    history: list[tuple[float, float, bool]],
) -> None:
    now, roll = 1_000.0, 0.5
    retries = Retries(TIMING, lambda: roll)
    for up, jitter, was_connected in history:
        roll = jitter
        up_since = now if was_connected else None
        now += up
        retries.failed(now, up_since=up_since)
        pause = retries.until - now
        assert 0.75 * TIMING.rest <= pause <= 1.25 * TIMING.longest_rest
        now = retries.until


def test_pauses_double_until_five_failures_in_a_minute() -> None:
    retries = Retries(TIMING, lambda: 0.5)
    now, pauses = 0.0, list[float]()
    for _ in range(5):
        retries.failed(now)
        pauses.append(retries.until - now)
        now = retries.until
    assert pauses == [1, 2, 4, 8, 60]
    retries.reset()
    retries.failed(now)
    assert retries.until - now == 1 and retries.in_a_row == 1


def test_stable_connection_resets_earlier_failures() -> None:
    retries = Retries(TIMING, lambda: 0.5)
    for _ in range(3):
        retries.failed(0.0)
    retries.failed(100.0, up_since=30.0)
    assert retries.in_a_row == 1 and retries.until == 101.0
    retries.failed(110.0, up_since=105.0)
    assert retries.in_a_row == 2


def test_delay_requested_by_the_server_is_limited() -> None:
    retries = Retries(TIMING, lambda: 0.5)
    retries.failed(0.0, requested_delay=20)
    assert retries.until == 20
    retries.failed(0.0, requested_delay=1e9)
    assert retries.until == LONGEST_DELAY


@given(st.integers(0, 10**9), st.integers(0, 100))
def test_stream_is_not_reopened_before_the_requested_delay(requested: int, failures: int) -> None:
    delay = min(requested / 1000, LONGEST_DELAY)
    assert max(delay, 0.5) <= pause_before_retry(requested, failures) <= 1.25 * max(delay, 60)
