"""Which connection is closed when there are too many."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.gate.principals import OWNER_KEY
from toolcrib.web.connections import Connections


@dataclass(eq=False)
class Wire:
    """A connection that notes when it is closed."""

    is_busy: bool = False
    is_closed: bool = field(default=False, init=False)

    def shed(self) -> None:
        """Close."""
        self.is_closed = True


def opened(table: Connections, number: int, key: str | None = None, *, busy: bool = False) -> list[Wire]:
    """So many connections, of this principal if one is named."""
    wires = [Wire(busy) for _ in range(number)]
    for wire in wires:
        table.add(wire)
        if key is not None:
            assert table.claim(wire, key)
    return wires


def closed(wires: list[Wire]) -> int:
    return sum(wire.is_closed for wire in wires)


def test_unauthenticated_connections_are_closed_first_and_the_oldest_of_them() -> None:
    table = Connections(16)
    known = opened(table, 3, "token a")
    unknown = opened(table, 13)
    assert table.make_room()
    assert table.make_room()
    assert [wire.is_closed for wire in unknown[:3]] == [True, False, False]
    assert closed(known) == 0


def test_an_unauthenticated_connection_is_closed_even_while_it_is_busy() -> None:
    table = Connections(2)
    owner, stranger = opened(table, 1, OWNER_KEY, busy=True), opened(table, 1, busy=True)
    assert table.make_room()
    assert (closed(owner), closed(stranger)) == (0, 1)


def test_a_token_beyond_its_share_closes_its_own_idle_connection() -> None:
    table = Connections(16)
    other, own = opened(table, 4, "token b"), opened(table, 4, "token a")
    opened(table, 1, "token a")
    assert (closed(own), closed(other)) == (1, 0)
    assert own[0].is_closed


def test_a_token_with_only_busy_connections_gets_no_more() -> None:
    table = Connections(16)
    own = opened(table, 4, "token a", busy=True)
    more = Wire()
    table.add(more)
    assert not table.claim(more, "token a")
    assert closed(own) == 0
    assert table.claim(more, "token b")


def test_all_tokens_together_leave_room_for_the_owner() -> None:
    table = Connections(16)
    for token in ("token a", "token b", "token c"):
        opened(table, 4, token, busy=True)
    opened(table, 2, "token d", busy=True)
    last = Wire()
    table.add(last)
    assert not table.claim(last, "token e")
    assert table.claim(last, OWNER_KEY)


def test_the_token_with_the_most_connections_gives_up_an_idle_one_for_another() -> None:
    table = Connections(16)
    many = opened(table, 4, "token a")
    for token in ("token b", "token c"):
        opened(table, 4, token, busy=True)
    opened(table, 2, "token d", busy=True)
    assert opened(table, 1, "token e")
    assert closed(many) == 1


def test_nothing_is_closed_where_everything_is_busy() -> None:
    table = Connections(2)
    wires = opened(table, 2, OWNER_KEY, busy=True)
    assert not table.make_room()
    assert closed(wires) == 0


def test_a_connection_is_forgotten_once_however_often_it_closes() -> None:
    table = Connections(4)
    (wire,) = opened(table, 1, "token a")
    table.remove(wire)
    table.remove(wire)
    assert len(table) == 0


@given(st.lists(st.tuples(st.sampled_from([None, "token a", "token b", OWNER_KEY]), st.booleans()), max_size=80))
def test_the_owner_can_always_connect_whatever_tokens_and_strangers_hold(steps: list[tuple[str | None, bool]]) -> None:
    table = Connections(16)
    for key, busy in steps:
        if key == OWNER_KEY:
            continue
        wire = Wire(busy)
        if table.make_room():
            table.add(wire)
            if key is not None:
                table.claim(wire, key)
        assert len(table) <= table.capacity
    owner = Wire()
    assert table.make_room()
    table.add(owner)
    assert table.claim(owner, OWNER_KEY)
    assert not owner.is_closed
