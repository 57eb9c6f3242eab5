"""The brake on wrong credentials."""

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.web.limits import Throttle


class Clock:
    """A clock that stands still until it is moved."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_failures_beyond_the_allowed_number_are_told_and_forgotten_with_time() -> None:
    clock = Clock()
    throttle = Throttle(allowed=3, window=60, clock=clock)
    assert [throttle.record_failure("a") for _ in range(5)] == [False, False, False, True, True]
    assert throttle.record_failure("b") is False
    clock.now = 61
    assert throttle.record_failure("a") is False


def test_a_steady_stream_of_failures_stays_braked() -> None:
    clock = Clock()
    throttle = Throttle(allowed=3, window=60, clock=clock)
    told: list[bool] = []
    for clock.now in range(0, 600, 10):
        told.append(throttle.record_failure("a"))
    assert told == [False] * 3 + [True] * 57


def test_only_so_many_addresses_are_remembered() -> None:
    throttle = Throttle(allowed=1, capacity=10, clock=Clock())
    throttle.record_failure("first")
    for number in range(10):
        throttle.record_failure(str(number))
    assert throttle.record_failure("first") is False
    assert throttle.record_failure("9") is True


@given(st.lists(st.floats(0, 30), max_size=80))
def test_an_address_is_braked_exactly_when_the_window_holds_more_than_allowed(gaps: list[float]) -> None:
    clock = Clock()
    throttle = Throttle(allowed=5, window=60, clock=clock)
    times: list[float] = []
    for gap in gaps:
        clock.now += gap
        times.append(clock.now)
        recent = [at for at in times if at > clock.now - 60]
        assert throttle.record_failure("a") == (len(recent) > 5)
