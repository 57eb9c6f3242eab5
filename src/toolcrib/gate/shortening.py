"""Shortens the descriptions of a server's tools that repeat each other or themselves.

Three kinds of text are left out: a paragraph or sentence that an earlier tool of the server has, an argument's
description that only repeats the argument's name or the tool's description, and the description of an argument that an
earlier tool describes in the same words. `See also` names the earlier tool, so nothing is lost. Only `description`
strings change: the schemas accept the same arguments. Pure.

Invariant: a shortened definition is never longer, and shortening it again changes nothing.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from toolcrib.model.json import Json, JsonObject, dumps, is_object
from toolcrib.model.tools import Tool, ToolRef

_LEAST: Final = 40
"""Characters of a paragraph or sentence that is worth a reference."""
_PARAGRAPHS: Final = re.compile(r"\n\s*\n")
_SENTENCES: Final = re.compile(r"(?<=[.!?])[ \t]+")
_REFERENCE: Final = re.compile(r"See also `[^`\s]+`(, `[^`\s]+`)*\.")
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W_A-Za-z]+")
_FILLERS: Final = frozenset({"a", "an", "of", "the", "to"})
_FENCE: Final = "```"


def shorten(tools: Iterable[Tool], chosen: Container[ToolRef]) -> dict[ToolRef, Tool]:
    """Return the chosen tools of one server that become shorter. The first tool that has a text keeps it."""
    texts: dict[str, str] = {}
    arguments: dict[tuple[str, str], str] = {}
    found: dict[ToolRef, Tool] = {}
    for tool in tools:
        is_chosen = tool.ref in chosen
        description = _shorter_description(tool, texts) if is_chosen else tool.description
        said = {_key(piece) for piece in _pieces(description)}
        schema = _Arguments(tool.ref.tool, said, arguments, is_chosen).shorten(tool.input_schema)
        if not re.search(r"[`\s]", tool.ref.tool):  # a name that a reference can contain
            for piece in _pieces(description):
                texts.setdefault(_key(piece), tool.ref.tool)
        if is_chosen and (description != tool.description or schema != tool.input_schema):
            found[tool.ref] = replace(tool, description=description, input_schema=schema)
    return found


def _shorter_description(tool: Tool, texts: Mapping[str, str]) -> str:
    """Return the description without the paragraphs and sentences that earlier tools have. Its first one stays."""
    if _FENCE in tool.description:
        return tool.description
    known: set[str] = set()
    named: dict[str, None] = {}
    paragraphs: list[str] = []
    is_first = True
    for paragraph in _paragraphs(tool.description):
        kept: list[str] = []
        for piece in _split(paragraph):
            key = _key(piece)
            is_repeated = len(piece) >= _LEAST and not _REFERENCE.fullmatch(piece) and not is_first
            if is_repeated and key in texts:
                named[texts[key]] = None
            elif not (is_repeated and key in known):
                kept.append(piece)
            known.add(key)
            is_first = False
        if kept:
            paragraphs.append(" ".join(kept))
    if named:
        paragraphs.append(_reference(named))
    return _shorter(tool.description, "\n\n".join(paragraphs))


class _Arguments:
    """Shortens the descriptions of one tool's arguments. `known` has those of earlier tools, and gets its own."""

    def __init__(self, tool: str, said: Container[str], known: dict[tuple[str, str], str], is_chosen: bool) -> None:
        self._tool = tool
        self._said = said
        self._known = known
        self._is_chosen = is_chosen

    def shorten(self, schema: JsonObject) -> JsonObject:
        """Return the schema of an object or of an array's items."""
        changed: JsonObject = {}
        properties: Json = schema.get("properties")
        if is_object(properties):
            changed["properties"] = {
                name: self._argument(name, each) if is_object(each) else each for name, each in properties.items()
            }
        items: Json = schema.get("items")
        if is_object(items):
            changed["items"] = self.shorten(items)
        return {**schema, **changed}

    def _argument(self, name: str, schema: JsonObject) -> JsonObject:
        schema = self.shorten(schema)
        text: Json = schema.get("description")
        if not isinstance(text, str) or _REFERENCE.fullmatch(text):
            return schema
        if _words(text) == _words(name) or all(_key(piece) in self._said for piece in _pieces(text)):
            return {key: value for key, value in schema.items() if key != "description"} if self._is_chosen else schema
        first = self._known.setdefault((name, _key(text)), self._tool)
        if first == self._tool or not self._is_chosen or re.search(r"[`\s]", first):
            return schema
        return {**schema, "description": _shorter(text, _reference([first]))}


def _paragraphs(text: str) -> list[str]:
    return [kept for part in _PARAGRAPHS.split(text.strip()) if (kept := part.rstrip())]


def _split(paragraph: str) -> list[str]:
    """Return the sentences of a paragraph. One of several lines, such as a list, is a whole."""
    return [paragraph] if "\n" in paragraph else [part for part in _SENTENCES.split(paragraph) if part]


def _pieces(text: str) -> Iterator[str]:
    return (piece for paragraph in _paragraphs(text) for piece in _split(paragraph))


def _key(text: str) -> str:
    return " ".join(text.split()).casefold()


def _words(text: str) -> list[str]:
    """Return the words of a text or an identifier that carry meaning."""
    return [word for found in _WORDS.findall(text) if (word := found.casefold()) not in _FILLERS]


def _reference(tools: Iterable[str]) -> str:
    return f"See also {', '.join(f'`{each}`' for each in tools)}."


def _shorter(text: str, candidate: str) -> str:
    return candidate if len(dumps(candidate)) < len(dumps(text)) else text
