"""Search tools by words in name, title, description and argument names, best match first.

A word scores by its field (name, title, description, arguments, in falling order) and its fit (whole word, prefix,
substring). A tool must contain every word of the query.

A search runs on the event loop, so its work is bounded: a query has few words, and the words of each tool are cached.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from toolcrib.model.json import Json
from toolcrib.model.tools import Tool, ToolRef

MOST_WORDS = 32
"""Words of a query that count. The rest is ignored."""
LONGEST_QUERY = 1_000
"""Characters of a query that are read."""
_KEPT = 20_000
_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class _Field(NamedTuple):
    """The words of one field of a tool: as a set, and joined, each after a space."""

    weight: float
    words: frozenset[str]
    joined: str


_fields_of: dict[ToolRef, tuple[Tool, tuple[_Field, ...]]] = {}


def search(tools: Iterable[Tool], query: str) -> list[Tool]:
    """Return the tools that contain every word of the query, best first, ties sorted by identity."""
    words = list(dict.fromkeys(_words(query[:LONGEST_QUERY])))[:MOST_WORDS]
    scored = [(score, tool) for tool in tools if (score := _score(tool, words))]
    return [tool for _, tool in sorted(scored, key=lambda pair: (-pair[0], pair[1].ref))]


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(_HUMP.sub(" ", text))]


def _score(tool: Tool, query: list[str]) -> float:
    fields = _fields(tool)
    total = 0.0
    for word in query:
        best = max(field.weight * _fit(word, field) for field in fields)
        if not best:
            return 0.0
        total += best
    return total


def _fields(tool: Tool) -> tuple[_Field, ...]:
    kept = _fields_of.get(tool.ref)
    if kept is None or kept[0] is not tool:
        if len(_fields_of) >= _KEPT:
            _fields_of.clear()
        properties: Json = tool.input_schema.get("properties") or {}
        kept = _fields_of[tool.ref] = (
            tool,
            (
                _field(8.0, tool.ref.tool),
                _field(5.0, tool.title or ""),
                _field(4.0, tool.ref.server),
                _field(2.0, tool.description),
                _field(1.0, " ".join(str(name) for name in properties)),
            ),
        )
    return kept[1]


def _field(weight: float, text: str) -> _Field:
    words = _words(text)
    return _Field(weight, frozenset(words), "".join(f" {word}" for word in words))


def _fit(word: str, field: _Field) -> float:
    if word in field.words:
        return 1.0
    if f" {word}" in field.joined:
        return 0.7
    return 0.3 if word in field.joined else 0.0
