"""The throttle on wrong credentials."""

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.web.limits import Throttle
from unit.clock import Clock


def test_failures_beyond_the_limit_are_throttled_until_they_expire() -> None:
    clock = Clock()
    throttle = Throttle(allowed=3, window=60, clock=clock)
    assert [throttle.record_failure("a") for _ in range(5)] == [False, False, False, True, True]
    assert throttle.record_failure("b") is False
    clock.now = 61
    assert throttle.record_failure("a") is False


def test_steady_failures_stay_throttled() -> None:
    clock = Clock()
    throttle = Throttle(allowed=3, window=60, clock=clock)
    results: list[bool] = []
    for clock.now in range(0, 600, 10):
        results.append(throttle.record_failure("a"))
    assert results == [False] * 3 + [True] * 57


def test_number_of_remembered_addresses_is_limited() -> None:
    throttle = Throttle(allowed=1, capacity=10, clock=Clock())
    throttle.record_failure("first")
    for number in range(10):
        throttle.record_failure(str(number))
    assert throttle.record_failure("first") is False
    assert throttle.record_failure("9") is True


@given(st.lists(st.floats(0, 30), max_size=80))
def test_address_is_throttled_exactly_above_the_limit_of_the_window(gaps: list[float]) -> None:
    clock = Clock()
    throttle = Throttle(allowed=5, window=60, clock=clock)
    times: list[float] = []
    for gap in gaps:
        clock.now += gap
        times.append(clock.now)
        recent = [at for at in times if at > clock.now - 60]
        assert throttle.record_failure("a") == (len(recent) > 5)
