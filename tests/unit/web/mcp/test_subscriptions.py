"""Subscriptions: which holders follow which resource."""

from toolcrib.web.mcp.subscriptions import Holder, Subscriptions

ONE, OTHER = Holder("owner", "1"), Holder("owner", "2")


def test_subscription_ends_with_its_last_holder() -> None:
    table = Subscriptions()
    for holder in (ONE, OTHER, Holder("session")):
        table.add("s", "a://1", holder)
    assert not table.drop("s", "a://1", ONE)
    assert table.drop("s", "a://1", OTHER)
    assert not table.drop("s", "a://1", OTHER)
    assert table.drop("s", "a://1", Holder("session"))
    assert list(table.holders("s", "a://1")) == []


def test_holder_is_removed_from_all_its_resources() -> None:
    table = Subscriptions()
    table.add("s", "a://1", ONE)
    table.add("s", "a://2", ONE)
    table.add("s", "a://2", OTHER)
    assert table.forget(ONE) == [("s", "a://1")]
    assert list(table.holders("s", "a://2")) == [(OTHER, "a://2")]


def test_holder_of_a_directory_follows_the_resources_below_it() -> None:
    table = Subscriptions()
    table.add("s", "file:///project", ONE)
    assert list(table.holders("s", "file:///project/a.txt")) == [(ONE, "file:///project")]
    assert list(table.holders("s", "file:///projects")) == []
    assert list(table.holders("other", "file:///project")) == []


def test_each_holder_is_counted_once_for_each_resource() -> None:
    table = Subscriptions()
    for uri in ("a://1", "a://1", "a://2"):
        table.add("s", uri, ONE)
    table.add("s", "a://1", OTHER)
    assert (table.count(ONE), table.count(OTHER)) == (2, 1)
    table.drop("s", "a://1", ONE)
    table.drop("s", "a://1", ONE)
    assert table.count(ONE) == 1
    table.forget(ONE)
    assert (table.count(ONE), table.count(OTHER)) == (0, 1)
