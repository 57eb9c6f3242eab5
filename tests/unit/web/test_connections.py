"""Which connection is closed when there are too many."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.gate.principals import OWNER_KEY
from toolcrib.web.connections import Connections


@dataclass(eq=False)
class FakeConnection:
    """A connection that records whether it is closed."""

    is_busy: bool = False
    is_closed: bool = field(default=False, init=False)

    def shed(self) -> None:
        """Close the connection."""
        self.is_closed = True


def add_connections(
    table: Connections, number: int, key: str | None = None, *, busy: bool = False
) -> list[FakeConnection]:
    """Add this many connections, claimed by a principal if one is given."""
    connections = [FakeConnection(busy) for _ in range(number)]
    for connection in connections:
        table.add(connection)
        if key is not None:
            assert table.claim(connection, key)
    return connections


def number_closed(connections: list[FakeConnection]) -> int:
    return sum(connection.is_closed for connection in connections)


def test_oldest_unauthenticated_connection_is_closed_first() -> None:
    table = Connections(16)
    known = add_connections(table, 3, "token a")
    unknown = add_connections(table, 13)
    assert table.make_room()
    assert table.make_room()
    assert [connection.is_closed for connection in unknown[:3]] == [True, False, False]
    assert number_closed(known) == 0


def test_unauthenticated_connection_is_closed_even_if_busy() -> None:
    table = Connections(2)
    owner, unknown = add_connections(table, 1, OWNER_KEY, busy=True), add_connections(table, 1, busy=True)
    assert table.make_room()
    assert (number_closed(owner), number_closed(unknown)) == (0, 1)


def test_token_beyond_its_share_closes_its_own_idle_connection() -> None:
    table = Connections(16)
    other, own = add_connections(table, 4, "token b"), add_connections(table, 4, "token a")
    add_connections(table, 1, "token a")
    assert (number_closed(own), number_closed(other)) == (1, 0)
    assert own[0].is_closed


def test_token_with_only_busy_connections_gets_no_more() -> None:
    table = Connections(16)
    own = add_connections(table, 4, "token a", busy=True)
    more = FakeConnection()
    table.add(more)
    assert not table.claim(more, "token a")
    assert number_closed(own) == 0
    assert table.claim(more, "token b")


def test_all_tokens_together_leave_room_for_the_owner() -> None:
    table = Connections(16)
    for token in ("token a", "token b", "token c"):
        add_connections(table, 4, token, busy=True)
    add_connections(table, 2, "token d", busy=True)
    last = FakeConnection()
    table.add(last)
    assert not table.claim(last, "token e")
    assert table.claim(last, OWNER_KEY)


def test_token_with_the_most_connections_loses_an_idle_one() -> None:
    table = Connections(16)
    many = add_connections(table, 4, "token a")
    for token in ("token b", "token c"):
        add_connections(table, 4, token, busy=True)
    add_connections(table, 2, "token d", busy=True)
    assert add_connections(table, 1, "token e")
    assert number_closed(many) == 1


def test_busy_connections_are_not_closed() -> None:
    table = Connections(2)
    connections = add_connections(table, 2, OWNER_KEY, busy=True)
    assert not table.make_room()
    assert number_closed(connections) == 0


def test_removing_a_connection_is_idempotent() -> None:
    table = Connections(4)
    (connection,) = add_connections(table, 1, "token a")
    table.remove(connection)
    table.remove(connection)
    assert len(table) == 0


@given(st.lists(st.tuples(st.sampled_from([None, "token a", "token b", OWNER_KEY]), st.booleans()), max_size=80))
def test_owner_can_always_connect(steps: list[tuple[str | None, bool]]) -> None:
    table = Connections(16)
    for key, busy in steps:
        if key == OWNER_KEY:
            continue
        connection = FakeConnection(busy)
        if table.make_room():
            table.add(connection)
            if key is not None:
                table.claim(connection, key)
        assert len(table) <= table.capacity
    owner = FakeConnection()
    assert table.make_room()
    table.add(owner)
    assert table.claim(owner, OWNER_KEY)
    assert not owner.is_closed
