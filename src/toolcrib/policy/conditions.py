"""Conditions on arguments: whether one holds for the arguments of a call.

The arguments must be those the tool will be run with, after defaults and edits. Above: `rules`. Below: `patterns`,
`regular`. It must never raise, and never guess: what cannot be tested within the limits has no answer, and whoever asks
takes the careful side.
"""

from collections.abc import Sequence
from typing import Final

from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.model.policy import Condition
from toolcrib.policy.patterns import glob
from toolcrib.policy.regular import LONGEST_TEXT, NotRegular, regular

ABSENT: Final = object()
"""What a pointer leads to where nothing stands."""


def holds(condition: Condition, arguments: JsonObject) -> bool | None:
    """Whether the condition holds; None where that cannot be said."""
    found = pointed(condition.pointer, arguments)
    if found is ABSENT:
        return False
    if condition.test == "equals":
        return same(found, condition.value)
    if condition.test == "range":
        return _in_range(found, condition.value)
    if not isinstance(found, str) or not isinstance(condition.value, str):
        return False
    if condition.test == "glob":
        return bool(glob(condition.value)(found)) if len(found) <= LONGEST_TEXT else None
    try:
        return regular(condition.value).matches(found)
    except NotRegular:
        return None


def pointed(pointer: str, value: Json) -> Json:
    """What stands at a JSON pointer (RFC 6901), else `ABSENT`."""
    if not pointer:
        return value
    if not pointer.startswith("/"):
        return ABSENT
    for step in pointer[1:].split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if is_object(value):
            value = value.get(key, ABSENT)
        elif is_array(value):
            value = _item(value, key)
        else:
            return ABSENT
        if value is ABSENT:
            break
    return value


def _item(values: Sequence[Json], key: str) -> Json:
    if not (key.isascii() and key.isdigit() and len(key) < 10) or (key != "0" and key.startswith("0")):
        return ABSENT
    return values[int(key)] if int(key) < len(values) else ABSENT


def same(one: Json, other: Json) -> bool:
    """Whether two values are the same JSON: `1` is `1.0` and is not `true`."""
    if is_object(one) and is_object(other):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if is_array(one) and is_array(other):
        return len(one) == len(other) and all(same(*pair) for pair in zip(one, other, strict=True))
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def is_number(value: Json) -> bool:
    """Whether this is a JSON number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _in_range(found: Json, bounds: Json) -> bool | None:
    if not is_object(bounds):
        return None
    low, high = bounds.get("min", found), bounds.get("max", found)
    if not is_number(found):
        return False
    return low <= found <= high if is_number(low) and is_number(high) else None
