"""The terminal of a chat: text above, one row below, and neither ever in the other."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminal import Rows
from toolcrib.cli.chat.screen import Screen
from toolcrib.cli.chat.view import Piece, ViewLine, ViewText

WIDTH = 30
SAID = st.builds(ViewText, st.text(alphabet="abc xyz\n", max_size=60))
LINES = st.builds(ViewLine, st.text(alphabet="abc xyz", max_size=60))


def drawn(pieces: list[Piece], row: str | None = None, *, colours: bool = False) -> Rows:
    rows = Rows(WIDTH)
    screen = Screen(rows.write, lambda: WIDTH, colours=colours)
    if row is not None:
        screen.ask("> ", row, len(row))
    for piece in pieces:
        screen.show([piece])
    return rows


@given(st.lists(SAID | LINES, max_size=6), st.text(alphabet="qr", max_size=40))
def test_the_row_below_changes_nothing_of_the_text_above(pieces: list[Piece], typed: str) -> None:
    without, having = drawn(pieces).text.rstrip("\n"), drawn(pieces, typed).text.split("\n")
    assert "\n".join(having[:-1]).rstrip("\n") == without
    assert having[-1].startswith(">")


@given(st.text(alphabet="abc xyz\n", max_size=120), st.lists(st.integers(0, 120), max_size=10))
def test_a_text_looks_the_same_in_whatever_pieces_it_came(text: str, cuts: list[int]) -> None:
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    pieces: list[Piece] = [ViewText(text[start:end]) for start, end in pairwise(places)]
    assert drawn(pieces, "typed").text == drawn([ViewText(text)], "typed").text


@given(st.text(alphabet="abc xyz\n?>*", max_size=300))
def test_every_row_of_what_others_say_stands_in_from_the_margin_and_loses_no_word(text: str) -> None:
    rows = drawn([ViewText(text)]).text.split("\n")
    assert all(row == "" or row.startswith("  ") for row in rows)
    assert all(len(row) < WIDTH for row in rows)
    assert "".join("".join(rows).split()) == "".join(text.split())


def test_words_are_kept_whole_where_they_fit_into_a_row() -> None:
    assert drawn([ViewText("one two three four five six seven eight")]).text == (
        "  one two three four five six\n  seven eight"
    )


def test_a_line_of_ours_that_is_too_long_stands_in_where_it_goes_on() -> None:
    assert drawn([ViewLine("  CAREFUL: something is hidden in there")]).text.split("\n") == [
        "  CAREFUL: something is",
        "    hidden in there",
        "",
    ]


def test_a_line_of_ours_begins_a_row_also_where_a_text_is_unfinished() -> None:
    assert drawn([ViewText("so"), ViewLine("ours"), ViewText("and")], "typed").text == "  so\nours\n  and\n> typed"


@pytest.mark.parametrize(("cursor", "shown", "column"), [(0, "> abcdefghijklmnopqrstuvwxyza", 2), (52, "> ", 29)])
def test_of_a_long_line_the_part_around_the_cursor_is_shown(cursor: int, shown: str, column: int) -> None:
    rows = Rows(WIDTH)
    Screen(rows.write, lambda: WIDTH, colours=False).ask("> ", "abcdefghijklmnopqrstuvwxyz" * 2, cursor)
    assert rows.text.startswith(shown)
    assert rows.cursor == (0, column)
    assert len(rows.text) < WIDTH


def test_a_pasted_text_keeps_to_its_row_and_hides_nothing() -> None:
    rows = Rows(WIDTH)
    Screen(rows.write, lambda: WIDTH, colours=False).ask("> ", "a\nb\x1b\u202ec", 0)
    assert rows.text == "> a\\nb\\u{1b}\\u{202e}c"
    assert rows.obeyed == []


def test_what_prints_whole_lines_meanwhile_has_the_screen_to_itself() -> None:
    rows = Rows(WIDTH)
    screen = Screen(rows.write, lambda: WIDTH, colours=False)
    screen.ask("> ", "typed", 5)
    screen.show([ViewText("so")])
    with screen.aside():
        rows.write("a table\n")
    screen.show([ViewText("and on")])
    assert rows.text == "  so\na table\n  and on\n> typed"


def test_colours_are_there_only_where_they_are_wanted() -> None:
    written: list[str] = []
    for colours in (False, True):
        Screen(written.append, lambda: WIDTH, colours=colours).show([ViewLine("x", "strong"), ViewText("y", "faint")])
    plain, coloured = written
    assert "\x1b" not in plain
    assert re.sub("\x1b\\[[0-9]m", "", coloured) == plain
    assert coloured.count("\x1b[0m") == 2
