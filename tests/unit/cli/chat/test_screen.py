"""The terminal of a chat: text above, one input row below, never mixed."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminal import Rows
from toolcrib.cli.chat.screen import Screen
from toolcrib.cli.chat.view import Piece, ViewLine, ViewText

WIDTH = 30
TEXTS = st.builds(ViewText, st.text(alphabet="abc xyz\n", max_size=60))
LINES = st.builds(ViewLine, st.text(alphabet="abc xyz", max_size=60))


def draw(pieces: list[Piece], row: str | None = None, *, colours: bool = False) -> Rows:
    rows = Rows(WIDTH)
    screen = Screen(rows.write, lambda: WIDTH, colours=colours)
    if row is not None:
        screen.ask("> ", row, len(row))
    for piece in pieces:
        screen.show([piece])
    return rows


@given(st.lists(TEXTS | LINES, max_size=6), st.text(alphabet="qr", max_size=40))
def test_input_row_does_not_change_the_text_above(pieces: list[Piece], typed: str) -> None:
    without, having = draw(pieces).text.rstrip("\n"), draw(pieces, typed).text.split("\n")
    assert "\n".join(having[:-1]).rstrip("\n") == without
    assert having[-1].startswith(">")


@given(st.text(alphabet="abc xyz\n", max_size=120), st.lists(st.integers(0, 120), max_size=10))
def test_text_looks_the_same_in_any_pieces(text: str, cuts: list[int]) -> None:
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    pieces: list[Piece] = [ViewText(text[start:end]) for start, end in pairwise(places)]
    assert draw(pieces, "typed").text == draw([ViewText(text)], "typed").text


@given(st.text(alphabet="abc xyz\n?>*", max_size=300))
def test_text_rows_are_indented_and_no_word_is_lost(text: str) -> None:
    rows = draw([ViewText(text)]).text.split("\n")
    assert all(row == "" or row.startswith("  ") for row in rows)
    assert all(len(row) < WIDTH for row in rows)
    assert "".join("".join(rows).split()) == "".join(text.split())


def test_words_are_not_broken_where_they_fit_into_a_row() -> None:
    assert draw([ViewText("one two three four five six seven eight")]).text == (
        "  one two three four five six\n  seven eight"
    )


def test_continuation_of_a_long_line_is_indented() -> None:
    assert draw([ViewLine("  CAREFUL: something is hidden in there")]).text.split("\n") == [
        "  CAREFUL: something is",
        "    hidden in there",
        "",
    ]


def test_line_starts_a_new_row_after_unfinished_text() -> None:
    assert draw([ViewText("so"), ViewLine("note"), ViewText("and")], "typed").text == "  so\nnote\n  and\n> typed"


@pytest.mark.parametrize(("cursor", "shown", "column"), [(0, "> abcdefghijklmnopqrstuvwxyza", 2), (52, "> ", 29)])
def test_part_of_a_long_input_around_the_cursor_is_shown(cursor: int, shown: str, column: int) -> None:
    rows = Rows(WIDTH)
    Screen(rows.write, lambda: WIDTH, colours=False).ask("> ", "abcdefghijklmnopqrstuvwxyz" * 2, cursor)
    assert rows.text.startswith(shown)
    assert rows.cursor == (0, column)
    assert len(rows.text) < WIDTH


def test_pasted_text_stays_in_the_input_row_and_is_escaped() -> None:
    rows = Rows(WIDTH)
    Screen(rows.write, lambda: WIDTH, colours=False).ask("> ", "a\nb\x1b\u202ec", 0)
    assert rows.text == "> a\\nb\\u{1b}\\u{202e}c"
    assert rows.obeyed == []


def test_input_row_is_hidden_while_whole_lines_are_printed() -> None:
    rows = Rows(WIDTH)
    screen = Screen(rows.write, lambda: WIDTH, colours=False)
    screen.ask("> ", "typed", 5)
    screen.show([ViewText("so")])
    with screen.aside():
        rows.write("a table\n")
    screen.show([ViewText("and on")])
    assert rows.text == "  so\na table\n  and on\n> typed"


def test_colours_appear_only_if_enabled() -> None:
    written: list[str] = []
    for colours in (False, True):
        Screen(written.append, lambda: WIDTH, colours=colours).show([ViewLine("x", "strong"), ViewText("y", "faint")])
    plain, coloured = written
    assert "\x1b" not in plain
    assert re.sub("\x1b\\[[0-9]m", "", coloured) == plain
    assert coloured.count("\x1b[0m") == 2
