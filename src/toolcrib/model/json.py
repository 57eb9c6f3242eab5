"""JSON types, reading and writing, and the canonical form that digests are computed from.

Values of tools and results are passed through unchanged and typed as any JSON. `loads` and `dumps` wrap orjson and also
support integers beyond 64 bits, which orjson reads as floats and refuses to write. Use them for foreign values:
arguments, results, schemas, and stored copies of them.

`parse_strict` reads what callers send: a text has exactly one meaning or is rejected. `orjson` rejects invalid UTF-8, a
byte order mark, NaN, lone surrogates, numbers beyond a double and trailing data. `parse_strict` adds nesting depth,
repeated keys and long integers. The last two are detectable: a dropped key changes the number of quotes after a round
trip, and a long integer has many digits. Only ambiguous texts are parsed again by `json`, which exposes every key pair.

Invariant: an integer is read exactly, or rejected.
"""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, TypeGuard, cast

import orjson

Json: TypeAlias = Any
"""Any JSON value: None, bool, int, float, str, list or dict of these."""

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object."""


DIGITS_LIMIT: Final = 300
"""Maximum digits of an integer. Most programs, including orjson, read longer ones as infinity."""

_TOO_LONG = f"an integer has more than {DIGITS_LIMIT} digits"
_BEYOND = 10**DIGITS_LIMIT
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**64 - 1
_ONE_DIGIT = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19  # the minimum number of digits of an integer beyond 64 bits
_DEPTH_LIMIT = 255  # orjson's limit

MAX_DEPTH: Final = 200
"""Maximum nesting depth for `parse_strict`."""

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_ONE_BRACKET = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def no_members() -> JsonObject:
    """Return an empty object, as a default factory. `dict[str, Any]` is slower: it tries to set an attribute on it."""
    return {}


def is_object(value: Json) -> TypeGuard[JsonObject]:
    """Return whether a JSON value is an object."""
    return isinstance(value, dict)


def is_array(value: Json) -> TypeGuard[Sequence[Json]]:
    """Return whether a JSON value is an array. Tuples count too, since Python code may pass them."""
    return isinstance(value, (list, tuple))


def loads(text: bytes | str) -> Json:
    """Parse JSON. Raises `orjson.JSONDecodeError` for invalid JSON and for integers of more than 300 digits."""
    value = orjson.loads(text)
    if may_have_long_integer(text):  # rare: parse again without a limit on integers
        try:
            return json.loads(text, parse_int=integer)
        except ValueError as error:
            raise orjson.JSONDecodeError(str(error), str(text[:0]), 0) from None
    return value


def may_have_long_integer(text: bytes | str) -> bool:
    """Return whether a JSON text may contain an integer beyond 64 bits. False is certain."""
    if isinstance(text, str):
        text = text.encode("utf-8", "replace")
    return _LONG_NUMBER in text.translate(_ONE_DIGIT)


def integer(digits: str) -> int:
    """Parse an integer. Raises `ValueError` if it has too many digits."""
    if len(digits.lstrip("-")) > DIGITS_LIMIT:
        raise ValueError(_TOO_LONG)
    return int(digits)


def is_long_integer(value: Json) -> bool:
    """Return whether a value is an integer beyond 64 bits."""
    return type(value) is int and not _MIN_INTEGER <= value <= _MAX_INTEGER


def dumps(value: Any, default: Callable[[Any], Any] | None = None, option: int | None = None) -> bytes:
    """Serialize to JSON. Raises `TypeError` for other types, lone surrogates and integers that are too long."""
    try:
        return orjson.dumps(value, default, option)
    except TypeError:
        written = _with_long_integers(value, 0)
        if written is value:
            raise
    return orjson.dumps(written, default, option)


def _with_long_integers(value: Json, depth: int) -> Json:
    """Return the value with long integers replaced by orjson fragments, or the same object if there are none."""
    if is_long_integer(value):
        if abs(value) >= _BEYOND:
            raise TypeError(_TOO_LONG)
        return orjson.Fragment(str(value))
    if depth > _DEPTH_LIMIT:
        return value
    if is_object(value):
        members = {name: _with_long_integers(item, depth + 1) for name, item in value.items()}
        return members if any(members[name] is not item for name, item in value.items()) else value
    if is_array(value):
        items = [_with_long_integers(item, depth + 1) for item in value]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def canonical(value: Json) -> bytes:
    """Return the canonical bytes of a value: sorted keys, no whitespace, UTF-8.

    Raises `TypeError` for other types, lone surrogates and integers of more than 300 digits.
    """
    return dumps(value, option=orjson.OPT_SORT_KEYS)


def digest(value: Json) -> str:
    """Return the hex SHA-256 of the canonical form."""
    return hashlib.sha256(canonical(value)).hexdigest()


def storable(value: Json) -> Json:
    """Return the value as valid JSON: lone surrogates (from paths) are escaped, other types become text."""
    try:
        dumps(value)
    except TypeError:
        return _written_out(value)
    return value


def _written_out(value: Json) -> Json:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if is_object(value):
        return {_written_out(str(name)): _written_out(item) for name, item in value.items()}
    if is_array(value):
        return [_written_out(item) for item in value]
    try:
        dumps(value)
    except TypeError:
        return _written_out(str(value))
    return value


class MalformedJson(ValueError):
    """Raised for JSON that is invalid or ambiguous. The message is a clause with the reason."""


def parse_strict(body: bytes) -> Json:
    """Return the value of this text. Raises `MalformedJson`."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedJson(str(error)) from None
    if len(body) > 2 * MAX_DEPTH and body.count(b"[") + body.count(b"{") > MAX_DEPTH and _depth_exceeds(body):
        raise MalformedJson(f"nesting is deeper than {MAX_DEPTH} levels")
    if _lost_nothing(body, orjson.dumps(value)):
        return value
    try:
        return _read_every_pair(body.decode())
    except MalformedJson:
        raise
    except ValueError as error:
        raise MalformedJson(str(error)) from None


def refuse_long_integers(value: Json, body: bytes, *, but_in: str) -> None:
    """Raise `MalformedJson` for an integer beyond 64 bits outside the member `but_in`."""
    if may_have_long_integer(body):
        _refuse_long_integers(value, but_in)


def _refuse_long_integers(value: Json, but_in: str | None = None) -> None:
    if is_long_integer(value):
        raise MalformedJson("an integer does not fit into 64 bits")
    if is_object(value):
        for name, item in value.items():
            if name != but_in:
                _refuse_long_integers(item)
    elif is_array(value):
        for item in value:
            _refuse_long_integers(item)


def _lost_nothing(body: bytes, written: bytes) -> bool:
    """Return whether a round trip provably preserved all keys and numbers.

    Without a backslash, every quote delimits a string in both texts.
    """
    if written == body:
        return True
    if b"\\" in body or body.count(b'"') != written.count(b'"'):
        return False
    return not may_have_long_integer(body)


def _depth_exceeds(body: bytes) -> bool:
    """Return whether valid JSON is nested too deeply. Each pass removes the innermost pairs of brackets."""
    brackets = _STRING.sub(b"", body).translate(_ONE_BRACKET, _NOT_BRACKETS)
    for _ in range(MAX_DEPTH):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _without_repeats(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """Return the pairs as a dict. Raises `MalformedJson` for a repeated key."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise MalformedJson(f"the key {_first_repeated(pairs)!r} appears twice in one object")
    return value


def _first_repeated(pairs: list[tuple[str, Json]]) -> str:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return key[:100]
        seen.add(key)
    raise AssertionError("no key is repeated")


_read_every_pair = json.JSONDecoder(object_pairs_hook=_without_repeats, parse_int=integer).decode


def as_object(value: Json) -> JsonObject | None:
    """Return the value if it is an object."""
    return cast("JsonObject", value) if isinstance(value, dict) else None


def as_list(value: Json) -> list[Any] | None:
    """Return the value if it is a list."""
    return cast("list[Any]", value) if isinstance(value, list) else None


def as_text(value: Json) -> str | None:
    """Return the value if it is text."""
    return value if isinstance(value, str) else None


def at(value: Json, *path: str) -> Json:
    """Return the value under these keys, or None."""
    for key in path:
        holder = as_object(value)
        value = holder.get(key) if holder is not None else None
    return value


def encoded_members(body: JsonObject) -> tuple[bytes, JsonObject]:
    """Return the members of an object as JSON, and the object. Values that are not JSON are replaced."""
    try:
        return dumps(body)[1:-1], body
    except TypeError:
        body = storable(body)
        return dumps(body)[1:-1], body
