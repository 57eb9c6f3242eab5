"""Search over tools by words: name, title, description and argument names, best first.

A word scores by where it stands (name before title before description before arguments) and how well it fits (whole
word before beginning before part). Every word of the query has to be found somewhere.
"""

import re
from collections.abc import Iterable

from toolcrib.model.json import Json
from toolcrib.model.tools import Tool

_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def search(tools: Iterable[Tool], query: str) -> list[Tool]:
    """The tools that have every word of the query, best first; equal ones by identity."""
    words = _words(query)
    scored = [(score, tool) for tool in tools if (score := _score(tool, words))]
    return [tool for _, tool in sorted(scored, key=lambda pair: (-pair[0], pair[1].ref))]


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(_HUMP.sub(" ", text))]


def _score(tool: Tool, query: list[str]) -> float:
    properties: Json = tool.input_schema.get("properties") or {}
    arguments = " ".join(str(name) for name in properties)
    fields = (
        (8.0, _words(tool.ref.tool)),
        (5.0, _words(tool.title or "")),
        (4.0, _words(tool.ref.server)),
        (2.0, _words(tool.description)),
        (1.0, _words(arguments)),
    )
    best = [max(weight * _fit(word, words) for weight, words in fields) for word in query]
    return sum(best) if best and all(best) else 0.0


def _fit(word: str, words: list[str]) -> float:
    if word in words:
        return 1.0
    if any(other.startswith(word) for other in words):
        return 0.7
    return 0.3 if any(word in other for other in words) else 0.0
