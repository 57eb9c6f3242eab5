"""JSON and JSONC: comments and trailing commas are blanked in place, so every offset stays valid.

The standard library then parses the rest. A small scanner finds the members of one object at a time without building a
tree, so a file of many megabytes costs only a linear search.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib.servers.syntax.document import (
    Document,
    Duplicate,
    Key,
    KeyPath,
    Relaxation,
    SyntaxProblem,
    line_at,
    total,
)

MAX_DUPLICATES = 20

# An opening quote always matches, closed or not, so a text full of quotes cannot make the scan quadratic.
_STRING = r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"?'
_COMMENTS = re.compile(rf"{_STRING}|//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)")
_COMMAS = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")
_TOKENS = re.compile(rf"{_STRING}|[{{}}\[\],:]")
_ONE_STRING = re.compile(_STRING)
_SPACE = re.compile(r"[ \t\r\n]*")
_NOT_NEWLINE = re.compile(r"[^\r\n]")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Member:
    """One member of an object or array: its key and the offsets of key and value."""

    key: Key
    start: int
    value_start: int
    value_end: int


@total
def parse(text: str) -> Document:
    """Parse JSON, or JSONC if strict JSON fails. Raises `SyntaxProblem`."""
    repeated: list[str] = []
    relaxed: frozenset[Relaxation] = frozenset()
    plain = text
    try:
        value = _load(plain, repeated)
    except SyntaxProblem:
        plain, relaxed = blank(text)
        if not relaxed:
            raise
        repeated.clear()
        value = _load(plain, repeated)
    duplicates = _duplicates(plain) if repeated else ()

    def lines_of(path: KeyPath) -> Mapping[Key, int]:
        return _lines(plain, members_at(plain, path))

    return Document(value, lines_of, relaxed, duplicates)


def blank(text: str) -> tuple[str, frozenset[Relaxation]]:
    """Return the text with comments and trailing commas replaced by spaces, and which of them occurred."""
    found: set[Relaxation] = set()

    def comment(match: re.Match[str]) -> str:
        if match[0].startswith('"'):
            return match[0]
        found.add("comments")
        return _NOT_NEWLINE.sub(" ", match[0])

    def comma(match: re.Match[str]) -> str:
        if match[0] != ",":
            return match[0]
        found.add("trailing commas")
        return " "

    plain = _COMMAS.sub(comma, _COMMENTS.sub(comment, text))
    return plain, frozenset(found)


def members_at(plain: str, path: KeyPath) -> tuple[Member, ...]:
    """Return the members of the container at `path` in text without comments; empty if there is none."""
    offset = _skip_space(plain, 0)
    for key in path:
        # The last of equal keys counts, as in the parser.
        found = [member for member in members(plain, offset) if member.key == key]
        if not found:
            return ()
        offset = found[-1].value_start
    return tuple(members(plain, offset))


def members(plain: str, offset: int) -> Iterator[Member]:
    """Yield the members of the container that opens at `offset`, in order; nothing for a scalar."""
    opening = plain[offset : offset + 1]
    if opening not in ("{", "["):
        return
    position = _skip_space(plain, offset + 1)
    index = 0
    while position < len(plain) and plain[position] not in "}]":
        start = position
        key: Key = index
        if opening == "{":
            end = _end_of_string(plain, position)
            key = json.loads(plain[position:end])
            position = _skip_space(plain, _skip_space(plain, end) + 1)
        value_end = end_of_value(plain, position)
        yield Member(key, start, position, value_end)
        position = _skip_space(plain, value_end)
        if plain[position : position + 1] == ",":
            position = _skip_space(plain, position + 1)
        index += 1


def end_of_value(plain: str, offset: int) -> int:
    """Return the offset after the value that begins at `offset`."""
    try:
        return _DECODER.raw_decode(plain, offset)[1]
    except ValueError:
        return len(plain)


def _lines(plain: str, listed: Iterable[Member]) -> Mapping[Key, int]:
    lines: dict[Key, int] = {}
    line, counted = 1, 0
    for member in listed:
        line += plain.count("\n", counted, member.start)
        counted = member.start
        lines[member.key] = line
    return lines


def _end_of_string(plain: str, offset: int) -> int:
    match = _ONE_STRING.match(plain, offset)
    return match.end() if match else offset + 1


def _skip_space(plain: str, offset: int) -> int:
    match = _SPACE.match(plain, offset)
    return match.end() if match else offset


def _load(text: str, repeated: list[str]) -> Any:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        collected = dict(items)
        if len(collected) != len(items):
            repeated.append("")
        return collected

    try:
        return json.loads(text, object_pairs_hook=pairs, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise SyntaxProblem(error.msg, error.lineno) from None
    except RecursionError:
        raise SyntaxProblem("nested too deeply") from None
    except ValueError as error:  # a number with thousands of digits
        raise SyntaxProblem(str(error)) from None


def _refuse_constant(name: str) -> Any:
    raise SyntaxProblem(f"{name} is not JSON")


def _duplicates(plain: str) -> tuple[Duplicate, ...]:
    """Return the keys that repeat an earlier one of the same object, up to `MAX_DUPLICATES`."""
    found: list[Duplicate] = []
    seen: list[set[str]] = []
    last: re.Match[str] | None = None
    for token in _TOKENS.finditer(plain):
        mark = token[0]
        if mark in "{[":
            seen.append(set())
        elif mark in "}]":
            seen.pop()
        elif mark == ":" and last is not None:
            key = str(json.loads(last[0]))
            if key in seen[-1]:
                found.append(Duplicate(key, line_at(plain, last.start())))
                if len(found) == MAX_DUPLICATES:
                    break
            seen[-1].add(key)
        last = token
    return tuple(found)
