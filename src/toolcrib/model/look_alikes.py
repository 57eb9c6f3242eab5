"""Detects confusable names: other scripts, invisible characters, case and separators.

`look` folds a name to a skeleton (UTS #39, then case, separators and the strokes `i l 1`). Different names with the
same skeleton are a finding. Must never be used for matching or authorisation.

Pure, apart from loading the character table once, for the first name that is not ASCII.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from importlib.resources import files

from toolcrib.model.text import is_hidden, normalized

_SEPARATORS = re.compile(r"[\s_./:\\-]+")
_STROKES = str.maketrans({"i": "l", "1": "l", "|": "l", "!": "l", "0": "o", "m": "rn", "w": "vv"})
_LONGEST = 1024


@lru_cache(maxsize=65_536)
def look(name: str) -> str:
    """Return the skeleton of a name; confusable names have the same one."""
    folded = name[:_LONGEST]
    if not folded.isascii():
        folded = readable(folded)
    folded = folded.casefold()
    if not folded.isascii():
        folded = "".join(each for each in readable(folded) if each.isascii() or not _is_sign(each))
    return _SEPARATORS.sub("", folded).translate(_STROKES)


def looks_foreign(name: str) -> bool:
    """Return whether a name mixes ASCII letters with look-alikes, or consists of look-alikes.

    Accented letters are not look-alikes: `café` is a word.
    """
    if name.isascii():
        return False
    composed = normalized("NFD", name)
    table = _table()
    disguised = [each for each in composed if not each.isascii() and _is_letter(each) and _twin(each, table)]
    if not disguised:
        return False
    foreign = [each for each in composed if not each.isascii() and _is_letter(each)]
    return len(disguised) == len(foreign) or any(each.isascii() and each.isalpha() for each in composed)


def by_look(names: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the names, grouped by skeleton."""
    groups: defaultdict[str, set[str]] = defaultdict(set)
    for name in names:
        groups[look(name)].add(name)
    groups.pop("", None)  # names that consist of separators
    return {each: frozenset(group) for each, group in groups.items()}


def twins(names: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Return, for each name, the other names that look like it. Names without any are omitted."""
    found: dict[str, tuple[str, ...]] = {}
    for group in by_look(names).values():
        if len(group) > 1:
            found |= {name: tuple(sorted(group - {name})) for name in group}
    return found


def readable(text: str) -> str:
    """Return the text with look-alikes replaced by ASCII, without marks and hidden characters."""
    table = _table()
    shown = (each for each in normalized("NFD", text) if not _is_dropped(each))
    return "".join(each if each.isascii() else _twin(each, table) or each for each in shown)


def _twin(character: str, table: Mapping[str, str]) -> str | None:
    """Return the ASCII text that a character looks like, or None."""
    folded = character.casefold()
    if folded.isascii():  # the long s and the Kelvin sign
        return folded
    found = table.get(character)
    if found is not None:
        return found
    plain = "".join(each for each in normalized("NFKD", character) if not unicodedata.combining(each))
    return plain if plain != character and plain.isascii() else None


def _is_dropped(character: str) -> bool:
    return not character.isascii() and (unicodedata.category(character).startswith("M") or is_hidden(character))


def _is_sign(character: str) -> bool:
    return unicodedata.category(character).startswith(("P", "S", "Z"))


def _is_letter(character: str) -> bool:
    return not unicodedata.category(character).startswith(("M", "Z", "C"))


@cache
def _table() -> Mapping[str, str]:
    """Return the table of look-alike characters and their ASCII text."""
    lines = files("toolcrib.model").joinpath("confusables.txt").read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines if not line.startswith("# "))
    return {character: text for text, characters in rows for character in characters}
