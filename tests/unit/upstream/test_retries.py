"""When a server that failed is tried again: after growing pauses, with an end, and anew once it held."""

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.upstream.http.streamable import pause_before_retry
from toolcrib.upstream.retries import LONGEST_DELAY, Retries, Timing

TIMING = Timing()


@given(st.lists(st.tuples(st.floats(0, 500), st.floats(0, 1), st.booleans()), min_size=1, max_size=40))
def test_a_server_is_never_tried_without_a_pause_nor_left_alone_for_too_long(
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


def test_pauses_double_and_end_after_five_failures_in_a_minute() -> None:
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


def test_a_connection_that_held_makes_good_for_what_failed_before_it() -> None:
    retries = Retries(TIMING, lambda: 0.5)
    for _ in range(3):
        retries.failed(0.0)
    retries.failed(100.0, up_since=30.0)
    assert retries.in_a_row == 1 and retries.until == 101.0
    retries.failed(110.0, up_since=105.0)
    assert retries.in_a_row == 2


def test_a_server_that_asks_to_be_left_alone_is_in_bounds() -> None:
    retries = Retries(TIMING, lambda: 0.5)
    retries.failed(0.0, requested_delay=20)
    assert retries.until == 20
    retries.failed(0.0, requested_delay=1e9)
    assert retries.until == LONGEST_DELAY


@given(st.integers(0, 10**9), st.integers(0, 100))
def test_a_stream_is_never_opened_again_before_the_server_wants_it(asked: int, in_vain: int) -> None:
    wished = min(asked / 1000, LONGEST_DELAY)
    assert max(wished, 0.5) <= pause_before_retry(asked, in_vain) <= 1.25 * max(wished, 60)
