"""How long a list of a modern server holds before it is read again."""

import pytest

from toolcrib.model.json import Json
from toolcrib.upstream.keepalive import LONGEST_TTL, ttl_of
from toolcrib.upstream.retries import Timing


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (1, 30.0),
        (60_000, 60.0),
        (90_500.0, 90.5),
        (10**30, LONGEST_TTL),
        (0, Timing().ping_after),
        (-1, None),
        (True, None),
        ("60000", None),
        (None, None),
    ],
)
def test_the_life_of_a_list_is_what_the_server_says_within_bounds(said: Json, seconds: float | None) -> None:
    assert ttl_of({"ttlMs": said}, Timing()) == seconds


def test_a_list_without_a_life_does_not_expire() -> None:
    assert ttl_of({}, Timing()) is None
