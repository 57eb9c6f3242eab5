"""Markdown with front matter: the format of sub-agents and skills.

Front matter is often not valid YAML: hand-written files contain unquoted colons and quotes. What YAML rejects is parsed
line by line, with a problem reported. The YAML parser, `servers.syntax.yaml`, expands no aliases and runs no code.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.model.problems import Problem
from toolcrib.servers.syntax.document import SyntaxProblem
from toolcrib.servers.syntax.yaml import parse

_FENCE = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"([A-Za-z][\w-]*):[ \t]*(.*)")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


@dataclass(frozen=True, slots=True)
class Page:
    """A text with front matter: its fields, its body, and problems found while parsing."""

    fields: JsonObject
    body: str
    problems: tuple[Problem, ...] = ()


def read_page(text: str, file: str) -> Page | None:
    """Parse a page; return None if it has no front matter."""
    found = _FENCE.match(text)
    if found is None:
        return None
    body = text[found.end() :].strip("\n")
    try:
        value = parse(found[1]).value
    except SyntaxProblem as error:
        line = error.line + 1 if error.line is not None else None
        message = f"The front matter is not YAML ({error.reason}) and was read line by line."
        return Page(_by_line(found[1]), body, (Problem("agent.note", message, None, file, line),))
    return Page(value if is_object(value) else {}, body)


def write_page(fields: Mapping[str, Json], body: str) -> str:
    """Render a page."""
    lines = [f"{name}: {_value(value)}" for name, value in fields.items()]
    return "\n".join(["---", *lines, "---", "", body.strip("\n"), ""])


def words_of(value: Json) -> list[str]:
    """Parse a list, or a string separated by commas or spaces; separators inside parentheses do not split."""
    if isinstance(value, str):
        return [word.strip() for word in re.split(r",(?![^(]*\))|\s+(?![^(]*\))", value) if word.strip()]
    words = value if is_array(value) else ()
    return [word.strip() for word in words if isinstance(word, str) and word.strip()]


def _by_line(text: str) -> JsonObject:
    fields: JsonObject = {}
    last = None
    for line in text.splitlines():
        if found := _FIELD.fullmatch(line):
            last = found[1]
            fields[last] = found[2].strip().strip("\"'")
        elif last is not None and line.strip():
            fields[last] = f"{fields[last]} {line.strip()}".strip()
    return fields


def _value(value: Json) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)  # JSON is YAML
