"""The feed: replayed events, then live ones, without gaps or repeats."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.base.feed import Feed, fresh_start
from toolcrib.model.errors import NotFound

pytestmark = pytest.mark.anyio


async def next_numbers(feed: Feed, count: int, after: int | None = None) -> list[int]:
    """Return the numbers of the next events."""
    seen: list[int] = []
    with anyio.fail_after(5):
        async for event in feed.follow(after):
            seen.append(event.seq)
            if len(seen) == count:
                break
    return seen


async def test_follower_gets_kept_events_and_then_new_ones() -> None:
    feed = Feed()
    for _ in range(3):
        feed.publish("notice", {})
    seen: list[int] = []

    async def follow() -> None:
        seen.extend(await next_numbers(feed, 5, after=1))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        await anyio.lowlevel.checkpoint()
        for _ in range(4):
            feed.publish("notice", {})
    assert seen == [2, 3, 4, 5, 6]


async def test_follower_without_a_number_gets_only_new_events() -> None:
    feed = Feed()
    feed.publish("notice", {"old": True})
    async with anyio.create_task_group() as tasks:

        async def follow() -> None:
            assert await next_numbers(feed, 1) == [2]

        tasks.start_soon(follow)
        await anyio.lowlevel.checkpoint()
        feed.publish("notice", {})


@given(total=st.integers(0, 30), capacity=st.integers(1, 10), after=st.integers(-2, 32))
def test_kept_number_is_followed_exactly_and_another_is_rejected(total: int, capacity: int, after: int) -> None:
    feed = Feed(capacity=capacity)
    for _ in range(total):
        feed.publish("notice", {})
    kept = max(0, total - capacity) <= after <= total
    if kept:
        assert (
            anyio.run(next_numbers, feed, total - after, after) == list(range(after + 1, total + 1))
            if total > after
            else True
        )
    else:
        with pytest.raises(NotFound, match="no longer kept"):
            feed.check(after)


async def test_zero_is_the_first_event_of_any_feed() -> None:
    feed = Feed(start=1_000, capacity=2)
    feed.publish("notice", {})
    assert await next_numbers(feed, 1, after=0) == [1_001]
    for _ in range(2):
        feed.publish("notice", {})
    with pytest.raises(NotFound):
        feed.check(0)


async def test_closed_feed_ends_its_followers_after_the_last_event() -> None:
    feed = Feed()
    feed.publish("notice", {})
    feed.close()
    with anyio.fail_after(5):
        assert [event.seq async for event in feed.follow(0)] == [1]


async def test_follower_that_falls_behind_is_ended_with_a_reason() -> None:
    feed = Feed(capacity=2)
    feed.publish("notice", {})
    follower = feed.follow(0)
    await anext(follower)
    for _ in range(5):
        feed.publish("notice", {})
    with pytest.raises(NotFound) as caught:
        await anext(follower)
    assert caught.value.code == "feed.gone"


def test_event_numbers_are_positive_and_exact_in_json() -> None:
    earlier = Feed(start=fresh_start())
    for _ in range(1_000):
        earlier.publish("notice", {})
    assert fresh_start() > 0
    assert earlier.last < 2**53


async def test_listener_gets_every_event_until_it_stops() -> None:
    feed, kinds = Feed(), list[str]()
    stop = feed.listen(lambda event: kinds.append(event.kind))
    feed.publish("notice", {})
    stop()
    feed.publish("catalog_changed", {})
    assert kinds == ["notice"]
