"""Makes foreign text safe to display: nothing in it can hide, reorder text, or control a terminal.

Everything that displays foreign names, descriptions, commands or results to a person passes them through `visible`.
Text for programs and models must never be changed.
"""

import re
import unicodedata
from typing import Literal

_UNPLAIN = re.compile(r"[^\n\t -~]+")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\ufe00-\ufe0f\ufffc\U00013441\U00013442\U00016fe4"
    "\U0001d159\U000e0000-\U000e0fff]"
)
"""Characters classified as letters, marks or signs that render as nothing."""
_EMOJI_STYLE = "\ufe0e\ufe0f"
"""Variation selectors: they style the preceding symbol; anywhere else they are hidden characters."""
_JOINERS = "\u200c\u200d"
"""Used in the spelling of Persian and Indic words, and in composed emoji."""
_MARKS_KEPT = 8
_MARKS_SORTED = 30
"""Maximum run of combining marks to sort, as in the stream-safe text format (UAX #15)."""
_JOINER_OF_MARKS = "\u034f"


def visible(text: str) -> str:
    """Return the text with invisible characters escaped as `\\u{…}`.

    Escapes control, bidirectional, zero-width and tag characters, fillers, and every space but U+0020. Keeps line
    breaks and tabs, and only the first few of a long run of combining marks.
    """
    return _UNPLAIN.sub(lambda run: _escape(run[0]), text)


def normalized(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
    """Return a Unicode normal form of the text, in linear time.

    Python sorts a run of combining marks in quadratic time, seconds for 64 KB of text. Runs longer than any language
    needs are split with U+034F first.
    """
    if text.isascii():
        return text
    marks = "".join(each for each in set(text) if not each.isascii() and _begins_with_mark(each))
    if marks:
        text = re.sub(f"[{marks}]{{{_MARKS_SORTED}}}", rf"\g<0>{_JOINER_OF_MARKS}", text)
    return unicodedata.normalize(form, text)  # noqa: TID251 the only call


def _begins_with_mark(character: str) -> bool:
    """Return whether the character is a combining mark, or decomposes into some."""
    return unicodedata.combining(unicodedata.normalize("NFKD", character)[0]) > 0  # noqa: TID251 of one character


def is_hidden(character: str) -> bool:
    """Return whether a screen renders nothing for this character, or interprets it as a control."""
    return unicodedata.category(character) in _HIDDEN_CATEGORIES or _BLANK.match(character) is not None


def is_odd_space(character: str) -> bool:
    """Return whether this is a space other than U+0020, such as a no-break or ideographic space."""
    return character != " " and unicodedata.category(character) == "Zs"


def is_unseen(character: str) -> bool:
    """Return whether this character looks like nothing or like a plain space."""
    return is_hidden(character) or is_odd_space(character)


def styles_emoji(character: str, before: str) -> bool:
    """Return whether this is a variation selector for the visible symbol `before`."""
    return character in _EMOJI_STYLE and unicodedata.category(before) == "So" and not is_hidden(before)


def count_hidden(text: str) -> int:
    """Count the characters that hide something, except parts of an emoji and joiners inside a foreign word."""
    if text.isascii() and text.isprintable():
        return 0
    count = 0
    before = " "
    for character in text:
        if character not in "\n\t\r" and not " " <= character <= "~" and is_hidden(character):
            joins = character in _JOINERS and not before.isascii() and not is_unseen(before)
            count += not (joins or styles_emoji(character, before))
        before = character
    return count


def _escape(run: str) -> str:
    shown: list[str] = []
    marks = dropped = 0
    before = " "
    for character in run:
        if is_unseen(character) and not styles_emoji(character, before):
            shown.append(f"\\u{{{ord(character):x}}}")
        else:
            marks = marks + 1 if unicodedata.category(character).startswith("M") else 0
            if marks <= _MARKS_KEPT:
                shown.append(character)
            else:
                dropped += 1
        before = character
    return "".join(shown) + (f"[+{dropped} marks]" if dropped else "")
