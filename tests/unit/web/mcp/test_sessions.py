"""MCP sessions of the legacy era: their ids, and which one ends when there are too many."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.model.errors import Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.web.mcp.ended_sessions import KEPT, EndedSessions
from toolcrib.web.mcp.sealed_state import StateSeal
from toolcrib.web.mcp.sessions import LONGEST_ID, McpSession, McpSessions

HELLO: JsonObject = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"elicitation": {"form": {}}},
    "clientInfo": {"name": "client", "version": "1", "websiteUrl": "https://example.com"},
}
KEY = b"k" * 32


def make_sessions(*, most: int = 1_000, most_of_one: int = 100, key: bytes = KEY) -> McpSessions:
    return McpSessions(StateSeal(key), EndedSessions(), most=most, most_of_one=most_of_one)


def idle(_: str) -> bool:
    return False


def open_sessions(table: McpSessions, key: str, number: int) -> list[str]:
    ids = [f"{key} {each}" for each in range(number)]
    for session_id in ids:
        table.begin(McpSession(session_id, {}), key)
    return ids


def test_id_carries_the_clients_declaration_across_a_restart() -> None:
    session_id = make_sessions().new_id(HELLO, ["a"])
    found = make_sessions().hello_of(session_id, ["a"])
    assert found is not None
    assert found["capabilities"] == HELLO["capabilities"]
    assert found["protocolVersion"] == "2025-11-25"
    assert found["clientInfo"] == {"name": "client", "version": "1"}


def test_id_is_bound_to_its_principal_and_key() -> None:
    session_id = make_sessions().new_id(HELLO, ["a"])
    assert make_sessions().hello_of(session_id, ["b"]) is None
    assert make_sessions(key=b"o" * 32).hello_of(session_id, ["a"]) is None
    assert make_sessions().hello_of(session_id[:-4] + "AAAA", ["a"]) is None


def test_two_sessions_of_one_client_have_different_ids() -> None:
    table = make_sessions()
    assert table.new_id(HELLO, ["a"]) != table.new_id(HELLO, ["a"])


@given(st.integers(0, 200_000), st.integers(0, 200_000))
def test_length_of_an_id_is_limited(capability: int, name: int) -> None:
    hello: JsonObject = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"sampling": {}, "experimental": {"x": "y" * capability}},
        "clientInfo": {"name": "n" * name, "version": "1"},
    }
    table = make_sessions()
    session_id = table.new_id(hello, ["a"])
    assert len(session_id) <= LONGEST_ID
    assert all(0x21 <= ord(character) <= 0x7E for character in session_id)
    found = table.hello_of(session_id, ["a"])
    assert found is not None
    assert "sampling" in found["capabilities"]


@pytest.mark.parametrize("hello", [{}, {"capabilities": 1, "clientInfo": [], "protocolVersion": None}])
def test_malformed_handshake_still_gets_an_id(hello: JsonObject) -> None:
    table = make_sessions()
    assert table.hello_of(table.new_id(hello, ["a"]), ["a"]) is not None


def test_ended_session_stays_ended_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "ended"
    first = McpSessions(StateSeal(KEY), EndedSessions(file))
    gone, kept = first.new_id(HELLO, ["a"]), first.new_id(HELLO, ["a"])
    first.end(gone)
    for table in (first, McpSessions(StateSeal(KEY), EndedSessions(file))):
        assert table.hello_of(gone, ["a"]) is None
        assert table.hello_of(kept, ["a"]) is not None
    assert file.stat().st_mode & 0o777 == 0o600


def test_size_of_the_file_of_ended_sessions_is_limited(tmp_path: Path) -> None:
    file = tmp_path / "ended"
    file.write_text("".join(f"{number:032x} {2**40}\n" for number in range(2 * KEPT)), encoding="ascii")
    EndedSessions(file).add("one more", 60)
    assert len(file.read_text(encoding="ascii").splitlines()) == KEPT
    assert "one more" in EndedSessions(file)


def test_ended_sessions_are_dropped_when_their_ids_expire(tmp_path: Path) -> None:
    file, now = tmp_path / "ended", [1_000.0]
    EndedSessions(file, lambda: now[0]).add("a", 60)
    assert "a" in EndedSessions(file, lambda: now[0])
    now[0] += 61
    assert "a" not in EndedSessions(file, lambda: now[0])


def test_principal_with_too_many_sessions_loses_the_least_recently_used() -> None:
    table = make_sessions(most_of_one=3)
    others, own = open_sessions(table, "b", 3), open_sessions(table, "a", 3)
    table.touch(own[0])
    assert table.surplus("a", idle) == own[1]
    assert table.surplus("c", idle) is None
    assert others[0] in table.of("b")


def test_busy_session_is_kept_and_a_principal_with_only_busy_ones_is_refused() -> None:
    table = make_sessions(most_of_one=2)
    own = open_sessions(table, "a", 2)
    assert table.surplus("a", lambda each: each == own[0]) == own[1]
    table.get(own[1]).calls = 1
    with pytest.raises(Unavailable, match="in use"):
        table.surplus("a", lambda each: each == own[0])


def test_principal_with_the_most_sessions_loses_one_at_the_total_limit() -> None:
    table = make_sessions(most=6, most_of_one=4)
    large, small = open_sessions(table, "a", 4), open_sessions(table, "b", 2)
    assert table.surplus("b", idle) == large[0]
    assert table.surplus("c", idle) == large[0]
    table.forget(large[0])
    table.forget(large[1])
    open_sessions(table, "c", 2)
    assert table.surplus("b", idle) == small[0]


def test_forgotten_session_frees_its_place() -> None:
    table = make_sessions(most_of_one=1)
    (own,) = open_sessions(table, "a", 1)
    table.forget(own)
    table.forget(own)
    assert len(table) == 0
    assert table.surplus("a", idle) is None
