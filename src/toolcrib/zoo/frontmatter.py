"""Markdown with front matter: the form of sub-agents and of skills.

The front matter is YAML in name only: tools that write it by hand leave colons and quotes as they come. What YAML
refuses is read line by line, with a problem that says so.

Above: `transfer`. Below: `config.syntax.yaml`, which unfolds nothing and runs nothing.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from toolcrib.config.syntax.document import SyntaxProblem
from toolcrib.config.syntax.yaml import parse
from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.model.problems import Problem

_FENCE = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"([A-Za-z][\w-]*):[ \t]*(.*)")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


@dataclass(frozen=True, slots=True)
class Page:
    """A text with front matter: its fields, the rest, and what was odd."""

    fields: JsonObject
    body: str
    problems: tuple[Problem, ...] = ()


def read_page(text: str, file: str) -> Page | None:
    """The page of this text; None if it has no front matter."""
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
    """The text of a page."""
    lines = [f"{name}: {_value(value)}" for name, value in fields.items()]
    return "\n".join(["---", *lines, "---", "", body.strip("\n"), ""])


def words_of(value: Json) -> list[str]:
    """A list that may be written as one text, with commas or spaces; commas within brackets do not part."""
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
