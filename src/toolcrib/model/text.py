"""Text of others, made fit to be looked at: nothing in it can hide, reorder, or be obeyed by what shows it.

Names, descriptions, commands and results come from outside. Every sink that shows them to a person (terminal, page,
trust question) takes them through `visible` first; what goes to a program or a model is never changed.
"""

import re
import unicodedata

_UNPLAIN = re.compile(r"[^\n\t -~]+")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0\ufe00-\ufe0d\U000e0000-\U000e0fff]")
"""Characters that count as letters or marks and are drawn as nothing. U+FE0E and U+FE0F choose how a sign looks."""
_MARKS_KEPT = 8


def visible(text: str) -> str:
    """The text with everything unseen made visible as `\\u{…}`: control, bidirectional, zero-width and tag characters.

    Line breaks and tabs stay; of a flood of combining marks only the first few do.
    """
    return _UNPLAIN.sub(lambda run: _shown(run[0]), text)


def is_hidden(character: str) -> bool:
    """Whether a screen draws nothing for this character, or obeys it."""
    return unicodedata.category(character) in _HIDDEN_CATEGORIES or _BLANK.match(character) is not None


def _shown(run: str) -> str:
    shown: list[str] = []
    marks = dropped = 0
    for character in run:
        if is_hidden(character):
            shown.append(f"\\u{{{ord(character):x}}}")
            continue
        marks = marks + 1 if unicodedata.category(character).startswith("M") else 0
        if marks <= _MARKS_KEPT:
            shown.append(character)
        else:
            dropped += 1
    return "".join(shown) + (f"[+{dropped} marks]" if dropped else "")
