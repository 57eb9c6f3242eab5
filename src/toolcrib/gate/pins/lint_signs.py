"""Signs: patterns of text that a tool definition has no reason to contain, found at little cost.

A sign is a pattern for case-folded text and groups of words, one of each of which every match contains. Most
definitions have no word of most signs. An index by the beginnings of words selects the few patterns to search for, so
the cost depends on the text rather than on the number of signs.

Most definitions are ASCII and have no sign. Such texts are searched with the linear-time engine of `pydantic_core`, in
a thirtieth of the time that `re` takes. `re` confirms what the engine finds, and searches all other texts.

Pure. Every repetition in a pattern is bounded, because texts come from outside.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from pydantic_core import SchemaValidator, core_schema

Severity = Literal["hold", "warn"]
"""`hold` keeps a new definition back until a person has reviewed it; `warn` is a note."""
Context = Literal["described", "quoted", "defensive", "inspected", "chosen", "shown"]
"""Where a sign is harmless: described, quoted, about protection, a file that is not passed on, a target of the user, a
command in documentation."""
_BEGINNING = 5
_APART = bytes(byte if chr(byte).isalnum() and byte < 128 else 32 for byte in range(256))
"""Maps every byte that is not an ASCII letter or digit to a space."""
_WORD = re.compile(r"[^\W_]+")
_LOOK_AROUND = frozenset({"(?=", "(?!", "(?<=", "(?<!"})
_GROUPS = _LOOK_AROUND | {"(", "(?:"}
_TOKEN = re.compile(r"\\.|\(\?<?.|\[\^?|.", re.DOTALL)
_ASCII: Final = {"w": "0-9A-Za-z_", "d": "0-9", "s": r"\t-\r\x1C-\x20", "n": r"\n"}
"""The characters of a class of `re` that are ASCII."""
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

    @cached_property
    def _may_occur_in_ascii(self) -> Callable[[str], bool]:
        source = for_ascii(self.source)
        return linear(source) if source is not None else _always

    def occurs_in(self, folded: str) -> bool:
        """Return whether a case-folded text contains the sign."""
        if folded.isascii() and not self._may_occur_in_ascii(folded):
            return False
        return self.folded.search(folded) is not None


def linear(expression: str) -> Callable[[str], bool]:
    """Return a function that searches a text for an expression of the linear-time engine."""
    return SchemaValidator(core_schema.str_schema(pattern=expression, regex_engine="rust-regex")).isinstance_python


def _always(_: str) -> bool:
    return True


def for_ascii(source: str) -> str | None:
    """Return an expression of the linear-time engine that occurs in every ASCII text in which a verbose pattern does.

    Assertions that the engine does not have are left out, so it may occur in more texts. Returns None if the pattern
    has something else that the engine reads differently.
    """
    parts: list[str | None] = []
    group_ends: list[str] = []
    class_end = ""
    for token in _TOKEN.findall(source):
        if class_end:
            parts.append(_in_class(token, class_end))
            class_end = "" if token == "]" else class_end
        elif token in ("[", "[^"):
            opening, class_end = ("[", "]") if token == "[" else (r"[\x00-\x7F&&[^", "]]")
            parts.append(opening)
        elif token.startswith("("):
            parts.append("(?:" if token in _GROUPS else None)
            group_ends.append("){0}" if token in _LOOK_AROUND else ")")
        elif token == ")":
            parts.append(group_ends.pop())
        else:
            parts.append(_outside_class(token))
    return "".join(part for part in parts if part is not None) if None not in parts else None


def _outside_class(token: str) -> str | None:
    if token.isspace() or token in ("^", "$"):
        return ""
    if token == r"\b":
        return r"(?-u:\b)"
    if token == r"\W":
        return rf"[\x00-\x7F&&[^{_ASCII['w']}]]"
    if token.startswith("\\"):
        return _escape_token(token, "[{}]")
    return None if token in (".", "#") else token


def _in_class(token: str, end: str) -> str | None:
    if token == "]":
        return end
    if token.startswith("\\"):
        return _escape_token(token, "{}")
    if token.isalnum() or token == "-":
        return token
    return rf"\x{{{ord(token):X}}}" if len(token) == 1 else None


def _escape_token(token: str, form: str) -> str | None:
    """Return an escape in the engine's syntax; that of a class within `form`."""
    letter = token[1]
    if letter in _ASCII:
        return form.format(_ASCII[letter])
    return None if letter.isalnum() else rf"\x{{{ord(letter):X}}}"


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
    may_spell = not folded.isascii() or _may_spell_in_ascii(folded)
    text = _SPELLED.sub(_join_letters, folded) if may_spell else folded
    words = text.encode().translate(_APART).decode().split() if text.isascii() else _WORD.findall(text)
    return " ".join(words)


def _join_letters(spelled: re.Match[str]) -> str:
    return spelled[0].replace(" ", "")


_may_spell_in_ascii = linear(r"(?-u:\b)[A-Za-z] [A-Za-z] [A-Za-z](?-u:\b)")


class SignIndex:
    """Signs by the words they need."""

    def __init__(self, signs: Iterable[Sign]) -> None:
        self._by_beginning: dict[str, list[tuple[Sign, tuple[frozenset[str], ...]]]] = {}
        for each in signs:
            for beginning in each.needs[0]:
                self._by_beginning.setdefault(beginning, []).append((each, each.needs[1:]))

    def in_text(self, folded: str, words: set[str]) -> list[Sign]:
        """Return the signs in a case-folded text. `words` are the beginnings of its words."""
        possible: dict[Sign, None] = {}
        for beginning in sorted(self._by_beginning.keys() & words):
            for each, further in self._by_beginning[beginning]:
                for group in further:
                    if group.isdisjoint(words):
                        break
                else:
                    possible[each] = None
        return [each for each in possible if each.occurs_in(folded)]
