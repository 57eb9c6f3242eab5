"""The interactive view of all servers: its keys, and that it always fits the terminal."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.cli.mcp.view import ServersView, clip, draw, press
from toolcrib.cli.output import width
from toolcrib.model.json import JsonObject

DOWN, UP, ENTER, ESCAPE = "\x1b[B", "\x1b[A", "\r", "\x1b"


def server(name: str, state: str = "connected", **more: Any) -> JsonObject:
    """Return a server as the API describes it."""
    return {
        "name": name, "alias": name, "state": state, "sameAs": [], "sentence": f"{name} works.", "tools": 3,
        "sources": [{"client": "cursor", "scope": "user", "file": "/f", "line": 1}], "problems": [], **more,
    }  # fmt: skip


THREE = ServersView([server("a"), server("b", "needs_auth"), server("c", "untrusted")])


def press_keys(view: ServersView, *keys: str) -> ServersView:
    """Return the view after these keys, none of which may trigger an action."""
    for key in keys:
        after = press(view, key)
        assert isinstance(after, ServersView)
        view = after
    return view


def test_arrows_select_and_stop_at_both_ends() -> None:
    assert press_keys(THREE, DOWN, DOWN, DOWN).place == 2
    assert press_keys(THREE, DOWN, UP, UP).place == 0


def test_server_is_opened_and_closed() -> None:
    opened = press_keys(THREE, DOWN, ENTER)
    assert opened.opened is THREE.servers[1]
    assert press_keys(opened, ESCAPE).opened is None
    assert press_keys(opened, "q").opened is None


@pytest.mark.parametrize(
    ("key", "does"),
    [("t", "test"), ("e", "switch"), ("x", "trust"), ("s", "sign_in"), ("r", "reload"), ("a", "add"), ("q", "leave")],
)
def test_each_action_key_is_shown_on_the_screen(key: str, does: str) -> None:
    assert press(THREE, key) == does
    assert f"{key}: " in "\n".join(draw(THREE, 80, 24))


@pytest.mark.parametrize(("key", "does"), [("d", "remove"), ("o", "sign_out")])
def test_removal_and_sign_out_are_confirmed(key: str, does: str) -> None:
    confirming = press_keys(THREE, DOWN, key)
    assert "b? Press y to confirm" in "\n".join(draw(confirming, 80, 24))
    assert press(confirming, "y") == does
    assert press_keys(confirming, "n").asked is None
    assert press_keys(confirming, DOWN).place == confirming.place
    assert confirming.having([server("a")]).asked is None
    assert press(confirming, "\x03") == "interrupt"


def test_empty_list_allows_only_adding_and_leaving() -> None:
    assert press(ServersView(), "t") == ServersView()
    assert press(ServersView(), ENTER) == ServersView()
    assert press(ServersView(), "a") == "add"
    assert "Press a to add one." in draw(ServersView(), 80, 24)[0]


def test_busy_view_starts_no_other_action() -> None:
    busy = replace(THREE, busy="Connecting to a…")
    assert press(busy, "t") is busy
    assert press(busy, "q") == "leave"


def test_states_are_words_and_the_selected_row_is_marked() -> None:
    rows = draw(press_keys(THREE, DOWN), 80, 24)
    assert rows[0] == "MCP servers (3): 1 connected, 1 needs sign-in, 1 not trusted"
    assert rows[2:5] == [
        "  a  connected      a works.",
        "> b  needs sign-in  b works.",
        "  c  not trusted    c works.",
    ]


def test_updated_list_keeps_the_selection() -> None:
    view = press_keys(THREE, DOWN, DOWN).having([server("c"), server("d")])
    assert view.chosen is not None
    assert view.chosen["name"] == "c"
    assert view.having([server("d")]).place == 0


def test_trust_question_is_shown_in_full() -> None:
    command = "npx " + " ".join(f"argument-{number}" for number in range(60))
    question: JsonObject = {
        "name": "a", "place": "cursor, /f", "commandLine": command, "program": None, "cwd": None, "url": None,
        "env": [], "headers": [], "warnings": [],
    }  # fmt: skip
    view = replace(THREE, opened=server("a", question=question))
    shown = " ".join(" ".join(draw(view, 60, 100)).split())
    assert command in shown


@given(
    st.lists(st.text(min_size=1, max_size=60), max_size=30),
    st.integers(20, 200),
    st.integers(8, 60),
    st.booleans(),
    st.text(max_size=300),
)
def test_view_always_fits_the_terminal(names: list[str], columns: int, rows: int, is_open: bool, sentence: str) -> None:
    view = ServersView([server(name, sentence=sentence) for name in names], message=sentence)
    if is_open and names:
        view = replace(view, opened=view.servers[0])
    drawn = draw(view, columns, rows)
    assert all(width(row) < columns for row in drawn)
    assert all("\n" not in row and "\x1b" not in row for row in drawn)
    assert len(drawn) < rows


def test_cut_line_ends_with_an_ellipsis() -> None:
    assert clip("abcdefghij", 6) == "abcd…"
    assert clip("abc", 6) == "abc"
