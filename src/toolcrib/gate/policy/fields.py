"""Reads members of JSON or TOML objects one by one, and collects every fault with its path.

Must never ignore an unknown member.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar

from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import Json, JsonObject, is_array
from toolcrib.servers.syntax.document import line_at
from toolcrib.servers.syntax.toml import statements

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FieldFault:
    """A fault in one member. `path` locates it (`conditions/0/value`)."""

    path: str
    message: str


class FaultyRequest(InvalidRequest):
    """Raised for input with faults. Its message lists all of them."""

    def __init__(self, code: str, faults: Sequence[FieldFault]) -> None:
        super().__init__(code, " ".join(fault.message for fault in faults))
        self.faults = tuple(faults)

    @classmethod
    def of(cls, code: str, path: str, message: str) -> "FaultyRequest":
        """Return an error with a single fault."""
        return cls(code, [FieldFault(path, message)])


class Members:
    """Reads the members of an object one by one and collects their faults."""

    def __init__(self, raw: JsonObject, known: Collection[str], faults: list[FieldFault], at: str = "") -> None:
        self._raw = {_camel(key, known): value for key, value in raw.items()}
        self._faults = faults
        self._at = at
        for key in self._raw.keys() - set(known):
            near = get_close_matches(key, known, n=1)
            self.wrong(key, f"is not known{f'; did you mean `{near[0]}`?' if near else '.'}")

    def wrong(self, key: str, message: str) -> None:
        """Add a fault for this member."""
        self._faults.append(FieldFault(f"{self._at}{key}", f"`{self._at}{key}` {message}"))

    def take(self, key: str, check: Callable[[Json], T | None], expected: str, *, needed: bool = False) -> T | None:
        """Return the member as `check` reads it. A rejected value, or a missing one that is needed, is a fault."""
        value = self._raw.get(key)
        if value is None:
            if needed or key in self._raw:
                self.wrong(key, f"must be {expected}.")
            return None
        found = check(value)
        if found is None:
            self.wrong(key, f"must be {expected}.")
        return found


def _camel(key: str, known: Collection[str]) -> str:
    """Return the member that a `snake_case` key of a TOML file refers to."""
    first, *rest = key.split("_")
    written = first + "".join(word.capitalize() for word in rest)
    return written if written in known else key


def one_of(choices: Sequence[T]) -> Callable[[Json], T | None]:
    """Return a check that accepts one of these values."""
    return lambda value: next((choice for choice in choices if choice == value), None)


def text_of(longest: int) -> Callable[[Json], str | None]:
    """Return a check that accepts a non-empty text of at most `longest` characters."""
    return lambda value: value if isinstance(value, str) and 0 < len(value) <= longest else None


def boolean(value: Json) -> bool | None:
    """Accept true or false."""
    return value if isinstance(value, bool) else None


def list_of(check: Callable[[Json], T | None]) -> Callable[[Json], tuple[T, ...] | None]:
    """Return a check that accepts a non-empty list of items that `check` accepts."""

    def read(value: Json) -> tuple[T, ...] | None:
        items: list[Any] = [check(each) for each in value] if is_array(value) else []
        return tuple(items) if items and None not in items else None

    return read


def lines_of_tables(text: str, key: str) -> Callable[[int], int]:
    """Return a function from the index of a table `[[key]]` to its line. A list under one key uses the key's line."""
    starts = [line_at(text, each.start) for each in statements(text) if each.path == (key,)]
    return lambda number: starts[min(number, len(starts) - 1)] if starts else 1
