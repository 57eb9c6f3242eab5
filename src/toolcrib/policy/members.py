"""Members of what people write in JSON or TOML: taken one by one, every fault told with its place.

Above: `reading` (rules) and `limits`. Below: `config.syntax`, `model`. It must never pass over a member that it
does not know.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar

from toolcrib.config.syntax.document import line_at
from toolcrib.config.syntax.toml import statements
from toolcrib.errors import InvalidRequest
from toolcrib.model.json import Json, JsonObject, is_array

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one member; `path` names it (`conditions/0/value`)."""

    path: str
    message: str


class FaultyRequest(InvalidRequest):
    """What a person wrote has faults, all of which are told."""

    def __init__(self, code: str, faults: Sequence[Fault]) -> None:
        super().__init__(code, " ".join(fault.message for fault in faults))
        self.faults = tuple(faults)

    @classmethod
    def of(cls, code: str, path: str, message: str) -> "FaultyRequest":
        """One that has a single fault."""
        return cls(code, [Fault(path, message)])


class Members:
    """Takes members of an object one by one and gathers what is wrong with them."""

    def __init__(self, raw: JsonObject, known: Collection[str], faults: list[Fault], at: str = "") -> None:
        self._raw = {_camel(key, known): value for key, value in raw.items()}
        self._faults = faults
        self._at = at
        for key in self._raw.keys() - set(known):
            near = get_close_matches(key, known, n=1)
            self.wrong(key, f"is not known{f'; did you mean `{near[0]}`?' if near else '.'}")

    def wrong(self, key: str, message: str) -> None:
        """This member is wrong."""
        self._faults.append(Fault(f"{self._at}{key}", f"`{self._at}{key}` {message}"))

    def take(self, key: str, check: Callable[[Json], T | None], expected: str, *, needed: bool = False) -> T | None:
        """The member as `check` reads it; what it does not take is a fault, as is a missing one that is needed."""
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
    """The member that a `snake_case` key of a TOML file means."""
    first, *rest = key.split("_")
    written = first + "".join(word.capitalize() for word in rest)
    return written if written in known else key


def one_of(choices: Sequence[T]) -> Callable[[Json], T | None]:
    """Takes one of these."""
    return lambda value: next((choice for choice in choices if choice == value), None)


def text_of(longest: int) -> Callable[[Json], str | None]:
    """Takes a text that is not empty and not longer than this."""
    return lambda value: value if isinstance(value, str) and 0 < len(value) <= longest else None


def boolean(value: Json) -> bool | None:
    """Takes true or false."""
    return value if isinstance(value, bool) else None


def list_of(check: Callable[[Json], T | None]) -> Callable[[Json], tuple[T, ...] | None]:
    """Takes a list of what `check` takes, one at least."""

    def read(value: Json) -> tuple[T, ...] | None:
        items: list[Any] = [check(each) for each in value] if is_array(value) else []
        return tuple(items) if items and None not in items else None

    return read


def lines_of_tables(text: str, key: str) -> Callable[[int], int]:
    """The line on which each table `[[key]]` of a text begins; those of a list on one key are told by its line."""
    starts = [line_at(text, each.start) for each in statements(text) if each.path == (key,)]
    return lambda number: starts[min(number, len(starts) - 1)] if starts else 1
