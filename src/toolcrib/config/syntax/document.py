"""What every parser gives back: the value, what the text needed beyond the strict form, and where members stand."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from toolcrib.model.json import Json

Family = Literal["json", "toml", "yaml", "script"]
Key = str | int
KeyPath = tuple[Key, ...]
Relaxation = Literal["comments", "trailing commas", "TOML 1.1"]


class SyntaxProblem(Exception):
    """The text is not in the format; raised by parsers and turned into a `Problem` by the reader."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A key written twice in one object; the later one counts."""

    key: str
    line: int


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed text.

    `relaxed` names what a strict reader of the format would refuse. `notes` are oddities that did not stop parsing.
    `lines_of(path)` gives the line of each member of the container at `path`, and nothing for what is not there.
    """

    value: Json
    lines_of: Callable[[KeyPath], Mapping[Key, int]]
    relaxed: frozenset[Relaxation] = frozenset()
    duplicates: tuple[Duplicate, ...] = ()
    notes: tuple[str, ...] = ()


def unread(text: str) -> Document:
    """A text that is not data: nothing of it is looked at."""
    return Document(None, lambda path: {})


def line_at(text: str, offset: int) -> int:
    """The line number, from 1, of an offset."""
    return text.count("\n", 0, offset) + 1
