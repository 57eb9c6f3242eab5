"""TOML, with the 1.1 extensions that Codex accepts, and the positions of its statements.

`tomllib` is tried first; `tomlkit` parses what only TOML 1.1 allows. Positions come from a scanner that knows only
strings, comments and brackets, so tables keep their exact text when one of them is edited.
"""

import datetime
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from toolcrib.base.lazy_modules import lazy_module
from toolcrib.model import toml
from toolcrib.servers.syntax.document import Document, Key, KeyPath, SyntaxProblem, line_at, total

if TYPE_CHECKING:
    import tomlkit
    from tomlkit import exceptions as tomlkit_exceptions
else:
    tomlkit = lazy_module("tomlkit")
    tomlkit_exceptions = lazy_module("tomlkit.exceptions")

MAX_TOMLKIT = 256 * 1024
"""The slower parser is skipped for larger texts."""

_STRINGS = (
    r'"""(?:[^"\\]|\\[\s\S]|"(?!""))*+(?:"{3,5}|\Z)'
    r"|'''(?:[^']|'(?!''))*+(?:'{3,5}|\Z)"
    r'|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"?'
    r"|'[^'\n]*+'?"
)
_VALUE = re.compile(rf"{_STRINGS}|#[^\n]*|[\[\]{{}}\n]")
_KEY = re.compile(r"[ \t]*(?:(?P<bare>[A-Za-z0-9_-]+)|(?P<basic>\"(?:[^\"\\\n]|\\.)*\")|'(?P<literal>[^'\n]*)')[ \t]*")
_LAYOUT = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)+")
_TO_LINE_END = re.compile(r"[^\n]*\n?")

StatementKind = Literal["table", "array", "pair"]


@dataclass(frozen=True, slots=True)
class Statement:
    """A header or a key with its value: the full path, and the offsets of statement and value."""

    kind: StatementKind
    path: tuple[str, ...]
    start: int
    end: int
    value_start: int
    value_end: int


@total
def parse(text: str) -> Document:
    """Parse TOML. Raises `SyntaxProblem`."""
    value, relaxed = _load(text)
    value = plain_values(value)

    def lines_of(path: KeyPath) -> Mapping[Key, int]:
        found: dict[Key, int] = {}
        items = 0
        for statement in statements(text):
            if statement.kind == "array" and statement.path == path:
                found[items], items = line_at(text, statement.start), items + 1
            if len(statement.path) > len(path) and statement.path[: len(path)] == path:
                found.setdefault(statement.path[len(path)], line_at(text, statement.start))
        return found

    return Document(value, lines_of, frozenset({"TOML 1.1"}) if relaxed else frozenset())


def plain_values(value: Any) -> Any:
    """Convert dates and times to text, which leaves plain JSON."""
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return {key: plain_values(item) for key, item in table.items()}
    if isinstance(value, list):
        return [plain_values(item) for item in cast("list[Any]", value)]
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else value


def statements(text: str) -> Iterator[Statement]:
    """Yield every header and pair in order. An invalid text yields what precedes the error."""
    table: tuple[str, ...] = ()
    position = 0
    while (position := _skip_layout(text, position)) < len(text):
        start = position
        if text[position] == "[":
            double = text.startswith("[[", position)
            path, position = _key_path(text, position + (2 if double else 1))
            end = _line_end(text, position)
            table = path
            yield Statement("array" if double else "table", path, start, end, end, end)
        else:
            path, position = _key_path(text, position)
            if text[position : position + 1] != "=":
                return
            value_start = _skip_blanks(text, position + 1)
            value_end = _value_end(text, value_start)
            end = _line_end(text, value_end)
            yield Statement("pair", (*table, *path), start, end, value_start, value_end)
        if end <= start:
            return
        position = end


def _key_path(text: str, position: int) -> tuple[tuple[str, ...], int]:
    parts: list[str] = []
    while match := _KEY.match(text, position):
        basic = match["basic"]
        parts.append(match["bare"] or match["literal"] or (_unquote(basic) if basic else ""))
        position = match.end()
        if text[position : position + 1] != ".":
            break
        position += 1
    return tuple(parts), position


def _unquote(basic: str) -> str:
    try:
        return str(tomllib.loads(f"x = {basic}")["x"])
    except tomllib.TOMLDecodeError:
        return basic


def _value_end(text: str, position: int) -> int:
    depth = 0
    end = position
    for token in _VALUE.finditer(text, position):
        mark = token[0]
        if mark.startswith("#") or mark == "\n":
            if depth <= 0:
                return _rstrip(text, position, token.start())
            continue
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(mark, 0)
        end = token.end()
    return max(end, _rstrip(text, position, len(text)))


def _rstrip(text: str, start: int, end: int) -> int:
    return start + len(text[start:end].rstrip())


def _line_end(text: str, position: int) -> int:
    match = _TO_LINE_END.match(text, position)
    return match.end() if match else position


def _skip_blanks(text: str, position: int) -> int:
    while text[position : position + 1] in (" ", "\t"):
        position += 1
    return position


def _skip_layout(text: str, position: int) -> int:
    match = _LAYOUT.match(text, position)
    return match.end() if match else position


def _load(text: str) -> tuple[Any, bool]:
    """Return the value, and whether it needed TOML 1.1."""
    try:
        return toml.loads(text), False
    except tomllib.TOMLDecodeError as error:
        return _parse_newer(text, error), True
    except ValueError as error:
        raise SyntaxProblem(str(error)) from None


def _parse_newer(text: str, first: tomllib.TOMLDecodeError) -> Any:
    problem = SyntaxProblem(str(first), _line_in(str(first)))
    if len(text) > MAX_TOMLKIT:
        raise problem
    try:
        return tomlkit.parse(text).unwrap()
    except tomlkit_exceptions.ParseError as error:
        raise SyntaxProblem(str(error), error.line) from None
    except (tomlkit_exceptions.TOMLKitError, ValueError):
        raise problem from None


def _line_in(message: str) -> int | None:
    found = re.search(r"at line (\d+)", message)
    return int(found[1]) if found else None
