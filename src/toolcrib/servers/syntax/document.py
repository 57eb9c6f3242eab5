"""The result of every parser: the value, relaxations of the strict format, and the positions of members.

Third-party parsers may raise anything on user input. `total` converts all of it to `SyntaxProblem`, so a text that
breaks its parser counts as unreadable and affects nothing else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import Literal, TypeVar

from toolcrib.model.json import Json
from toolcrib.model.text import visible

Family = Literal["json", "toml", "yaml", "script"]
Key = str | int
KeyPath = tuple[Key, ...]
Relaxation = Literal["comments", "trailing commas", "TOML 1.1"]


class SyntaxProblem(Exception):
    """The text is not in the format; raised by parsers and converted to a `Problem` by the reader."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A key that occurs twice in one object; the later one counts."""

    key: str
    line: int


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed text.

    `relaxed` names what a strict parser of the format would refuse. `notes` are oddities that did not stop parsing.
    `lines_of(path)` returns the line of each member of the container at `path`; empty if there is none.
    """

    value: Json
    lines_of: Callable[[KeyPath], Mapping[Key, int]]
    relaxed: frozenset[Relaxation] = frozenset()
    duplicates: tuple[Duplicate, ...] = ()
    notes: tuple[str, ...] = ()


Parsed = TypeVar("Parsed")


def total(parse: Callable[[str], Parsed]) -> Callable[[str], Parsed]:
    """Wrap a parser so that it raises only `SyntaxProblem`, and the lines of its result never raise."""

    @wraps(parse)
    def guarded(text: str) -> Parsed:
        try:
            parsed = parse(text)
        except SyntaxProblem:
            raise
        except RecursionError:
            raise SyntaxProblem("nested too deeply") from None
        except Exception as error:  # boundary: a parser met unforeseen input
            message = next(iter(str(error).splitlines()), "") or type(error).__name__
            raise SyntaxProblem(visible(message[:200])) from error
        return _with_safe_lines(parsed)

    return guarded


def _with_safe_lines(parsed: Parsed) -> Parsed:
    if not isinstance(parsed, Document):
        return parsed
    find = parsed.lines_of

    def lines_of(path: KeyPath) -> Mapping[Key, int]:
        try:
            return find(path)
        except Exception:  # noqa: BLE001 boundary: a line that cannot be found is omitted
            return {}

    return replace(parsed, lines_of=lines_of)


def unread(text: str) -> Document:
    """Return an empty document for a text that is not data."""
    return Document(None, lambda path: {})


def line_at(text: str, offset: int) -> int:
    """Return the line number, from 1, of an offset."""
    return text.count("\n", 0, offset) + 1
