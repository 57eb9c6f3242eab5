"""Markdown in a chat: markup becomes styles, for any split of the text, and no letter is lost."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.cli.chat.markdown import MarkdownStyler
from toolcrib.cli.chat.view import Tone, ViewText


def style_text(*pieces: str) -> list[tuple[str, Tone]]:
    """Return the text by style, with neighbours of the same style joined."""
    styler = MarkdownStyler()
    found: list[tuple[str, Tone]] = []
    for piece in (*pieces, "\n"):
        for each in styler.feed(ViewText(piece)):
            if found and found[-1][1] == each.tone:
                found[-1] = (found[-1][0] + each.text, each.tone)
            else:
                found.append((each.text, each.tone))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# Title", [("Title", "strong"), ("\n", "plain")]),
        ("a **bold** word", [("a ", "plain"), ("bold", "strong"), (" word\n", "plain")]),
        ("an *odd* one", [("an ", "plain"), ("odd", "emphasis"), (" one\n", "plain")]),
        ("run `ls *.py` now", [("run ", "plain"), ("ls *.py", "code"), (" now\n", "plain")]),
        ("- one\n  * two\n> said", [("• one\n  • two\n│ said\n", "plain")]),
        ("```python\nx = 2 ** 3\n```\nend", [("python\n", "faint"), ("x = 2 ** 3", "code"), ("\nend\n", "plain")]),
        ("2 * 3 ** 4 and snake_case and #5", [("2 * 3 ** 4 and snake_case and #5\n", "plain")]),
        ("a*b*c", [("a*b*c\n", "plain")]),
        ("``a ` b``", [("a ` b", "code"), ("\n", "plain")]),
        ("never **closed\nnext", [("never ", "plain"), ("closed", "strong"), ("\nnext\n", "plain")]),
        ("-5 degrees\n#tag", [("-5 degrees\n#tag\n", "plain")]),
    ],
)
def test_markup_becomes_styles(text: str, expected: list[tuple[str, Tone]]) -> None:
    assert style_text(text) == expected
    assert style_text(*text) == expected  # one character at a time


@given(st.text(alphabet="a*`#->~ \n_", max_size=60), st.lists(st.integers(0, 60), max_size=5))
def test_result_does_not_depend_on_the_pieces(text: str, cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(places)]
    assert style_text(*pieces) == style_text(text)


@given(st.text(alphabet="ab*`# \n", max_size=60))
def test_letters_are_never_lost(text: str) -> None:
    shown = "".join(part for part, _ in style_text(text))
    assert re.sub("[^ab]", "", shown) == re.sub("[^ab]", "", text)
