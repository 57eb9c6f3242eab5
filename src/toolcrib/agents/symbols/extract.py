"""Parses one source file: its symbols, and the lines on which each name occurs.

Symbols are nested by their byte ranges. tree-sitter recovers from syntax errors; code that it cannot parse yields no
symbols.

Must never run in the crib's process.
"""

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, cast

from tree_sitter import Language, Node, Parser, Query, QueryCursor

from toolcrib.agents.symbols.entries import Kind, SourceFile, Symbol
from toolcrib.agents.symbols.files import digest_of
from toolcrib.agents.symbols.languages import LANGUAGES

LONGEST_SIGNATURE: Final = 200
LONGEST_NAME: Final = 200
_OWNERS: Final = frozenset({"class", "interface", "struct", "trait", "enum", "scope"})
"""A function directly inside one of these is a method."""
_LEAVES: Final = frozenset({"field", "type", "macro"})
"""These contain no symbols, even where the syntax tree nests some in them."""
_OTHERS: Final = frozenset(b"{};")
_RECEIVER: Final = re.compile(rb"(\w+)\s*(?:\[[^\]]*\])?\s*\)\s*$")


@dataclass(frozen=True, slots=True)
class _Found:
    """A definition or a scope in the syntax tree."""

    name: str
    kind: str
    whole: Node
    line: int
    within: str | None


def read_source(file: str, language: str, text: bytes) -> SourceFile:
    """Parse a file. Raises `ImportError` if the grammar is not installed."""
    loaded, symbols, names = _grammar(language)
    root = Parser(loaded).parse(text).root_node
    found = _definitions(QueryCursor(symbols).matches(root), text)
    lines = _lines(QueryCursor(names).captures(root).get("name", ()), text)
    return SourceFile(digest_of(text), tuple(_symbols(found, file, text)), lines)


@cache
def _grammar(language: str) -> tuple[Language, Query, Query]:
    """Load a language's grammar, with its queries for symbols and for names."""
    speech = LANGUAGES[language]
    pointer: object = getattr(importlib.import_module(speech.module), speech.function)()
    loaded = Language(pointer)
    names = " ".join(f"({kind})" for kind in speech.names)
    return loaded, Query(loaded, speech.symbols), Query(loaded, f"[{names}] @name")


def _lines(nodes: Sequence[Node], text: bytes) -> dict[str, list[int]]:
    """Return the lines of each name, without duplicates."""
    raw: dict[bytes, list[int]] = {}
    for node in nodes:
        line = node.start_point[0] + 1
        lines = raw.setdefault(text[node.start_byte : node.end_byte], [])
        if not lines or lines[-1] != line:
            lines.append(line)
    return {_text(name): sorted(set(lines)) for name, lines in raw.items() if 0 < len(name) <= LONGEST_NAME}


def _definitions(matches: Sequence[tuple[int, Mapping[str, Sequence[Node]]]], text: bytes) -> list[_Found]:
    """Return definitions and scopes in source order, outer ones first."""
    found: dict[tuple[int, bool], tuple[int, _Found]] = {}
    for pattern, captures in matches:
        name = captures["name"][0]
        kind = next(kind for kind in captures if kind not in ("name", "receiver"))
        within, written = _owner(captures.get("receiver", ()), name, text)
        one = _Found(written[:LONGEST_NAME], kind, captures[kind][0], name.start_point[0] + 1, within)
        place = (name.start_byte, kind == "scope")
        if place not in found or found[place][0] > pattern:
            found[place] = (pattern, one)
    ordered = [one for _, one in found.values()]
    return sorted(ordered, key=lambda one: (one.whole.start_byte, -one.whole.end_byte))


def _symbols(found: Sequence[_Found], file: str, text: bytes) -> Iterator[Symbol]:
    around: list[_Found] = []
    for one in found:
        while around and not _holds(around[-1].whole, one.whole):
            around.pop()
        if one.kind != "scope":
            outer = around[-1].kind if around else None
            container = ".".join([*(each.name for each in around), *([one.within] if one.within else [])]) or None
            kind = _kind(one, outer)
            yield Symbol(one.name, kind, file, one.line, container, _signature(one.whole, text))
        if one.kind not in _LEAVES:
            around.append(one)


def _holds(outer: Node, inner: Node) -> bool:
    """Return whether a node encloses another; names defined in one statement do not enclose each other."""
    return inner.start_byte < outer.end_byte and outer.byte_range != inner.byte_range


def _kind(one: _Found, outer: str | None) -> Kind:
    if one.kind == "function" and outer in _OWNERS:
        return "method"
    if one.kind in ("variable", "field") and one.name.isupper():
        return "constant"
    return cast("Kind", one.kind)


def _owner(receiver: Sequence[Node], name: Node, text: bytes) -> tuple[str | None, str]:
    """Return a method's type, from Go's receiver or C++'s qualified name, and the method's own name."""
    written = _text(text[name.start_byte : name.end_byte])
    for node in receiver:
        found = _RECEIVER.search(text[node.start_byte : node.end_byte])
        return (_text(found[1]) if found else None), written
    within, _, own = written.rpartition("::")
    return (within.strip(":").replace("::", ".") or None), own


def _signature(node: Node, text: bytes) -> str:
    """Return everything before the body on one line; without a body, the first line."""
    start = text.rfind(b"\n", 0, node.start_byte) + 1
    if _OTHERS & set(text[start : node.start_byte]) or node.start_byte - start > LONGEST_SIGNATURE:
        start = node.start_byte  # the line starts with another statement
    value = node.child_by_field_name("value")
    body = node.child_by_field_name("body") or (value.child_by_field_name("body") if value is not None else None)
    if body is not None:
        end = body.start_byte
    elif node.type == "function_declarator":
        end = node.end_byte
    else:
        first = text.find(b"\n", node.start_byte)
        end = min(node.end_byte, first) if first != -1 else node.end_byte
    words = " ".join(_text(text[start : min(end, start + 8 * LONGEST_SIGNATURE)]).split())
    return words if len(words) <= LONGEST_SIGNATURE else f"{words[: LONGEST_SIGNATURE - 1]}…"


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
