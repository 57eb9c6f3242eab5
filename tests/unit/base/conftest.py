"""Fixtures for the tests of `base`."""

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture
def alarm() -> Iterator[None]:
    """Fail the test if something blocks."""

    def ring(*_: object) -> None:
        raise AssertionError("It blocked.")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
