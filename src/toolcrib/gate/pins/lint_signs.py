"""Signs: patterns of text that a tool definition has no reason to contain, found at little cost.

A sign is a pattern for case-folded text and groups of words, one of each of which every match contains. Most
definitions have no word of most signs. An index by the beginnings of words selects the few patterns to search for, so
the cost depends on the text rather than on the number of signs.

Pure. Every repetition in a pattern is bounded, because texts come from outside.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Severity = Literal["hold", "warn"]
"""`hold` keeps a new definition back until a person has reviewed it; `warn` is a note."""
Context = Literal["described", "quoted", "defensive", "inspected", "chosen", "shown"]
"""Where a sign is harmless: described, quoted, about protection, a file that is not passed on, a target of the user, a
command in documentation."""
_BEGINNING = 5
_APART = bytes(byte if chr(byte).isalnum() and byte < 128 else 32 for byte in range(256))
"""Maps every byte that is not an ASCII letter or digit to a space."""
_WORD = re.compile(r"[^\W_]+")
_SPELLED = re.compile(r"\b(?:[^\W\d_] ){2,}[^\W\d_]\b")


@dataclass(frozen=True, eq=False)
class Sign:
    """One sign. `reason` completes a sentence such as "description …". The sign does not count in context `unless`."""

    reason: str
    code: str
    source: str
    needs: tuple[frozenset[str], ...]
    severity: Severity = "hold"
    unless: Context | None = None

    @cached_property
    def folded(self) -> re.Pattern[str]:
        """The pattern for case-folded text, where it runs several times as fast."""
        return re.compile(self.source, re.VERBOSE)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern for text as it is written. Only texts with a sign are searched with it."""
        return re.compile(self.source, re.VERBOSE | re.IGNORECASE)


def sign(
    reason: str,
    code: str,
    source: str,
    *needs: str,
    severity: Severity = "hold",
    unless: Context | None = None,
) -> Sign:
    """Return a sign. Each of `needs` lists words; a match contains a word that begins like one of each list."""
    groups = tuple(frozenset(each for word in words.split() for each in _beginnings_of(word)) for words in needs)
    return Sign(reason, code, source, groups, severity, unless)


def _beginnings_of(word: str) -> Iterator[str]:
    """Yield the beginnings of a word and of its forms. A word shorter than a beginning has several."""
    if len(word) >= _BEGINNING:
        yield word[:_BEGINNING]
        return
    yield from {word, *((word + ending)[:_BEGINNING] for ending in ("s", "d", "ed", "es", "ing", "n"))}


def beginnings(folded: str) -> set[str]:
    """Return the beginnings of all words in a case-folded text."""
    words = folded.encode().translate(_APART).decode().split() if folded.isascii() else _WORD.findall(folded)
    return {word[:_BEGINNING] for word in words}


def run_on(folded: str) -> str:
    """Return the words of a case-folded text without the marks between them, and spelled words as words."""
    text = _SPELLED.sub(_joined, folded)
    words = text.encode().translate(_APART).decode().split() if text.isascii() else _WORD.findall(text)
    return " ".join(words)


def _joined(spelled: re.Match[str]) -> str:
    return spelled[0].replace(" ", "")


class SignIndex:
    """Signs by the words they need."""

    def __init__(self, signs: Iterable[Sign]) -> None:
        self._by_beginning: dict[str, list[Sign]] = {}
        for each in signs:
            for beginning in each.needs[0]:
                self._by_beginning.setdefault(beginning, []).append(each)

    def in_text(self, folded: str, words: set[str]) -> list[Sign]:
        """Return the signs in a case-folded text. `words` are the beginnings of its words."""
        possible = {
            each: None
            for beginning in sorted(self._by_beginning.keys() & words)
            for each in self._by_beginning[beginning]
            if not any(group.isdisjoint(words) for group in each.needs[1:])
        }
        return [each for each in possible if each.folded.search(folded)]
