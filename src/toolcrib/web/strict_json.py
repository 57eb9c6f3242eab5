"""Strict JSON parsing: a text has exactly one meaning or is rejected.

`orjson` rejects invalid UTF-8, a byte order mark, NaN, lone surrogates, numbers beyond a double and trailing data. This
module adds nesting depth, repeated keys, and integers beyond 64 bits, which `orjson` would turn into floats. The last
two are detectable: a dropped key changes the number of quotes after a round trip, and a large integer has many digits.
Only ambiguous texts are parsed again by `json`, which exposes every key pair and reads integers exactly.

Must never guess what the sender meant.
"""

import json
import re

import orjson

from toolcrib.model.json import (
    Json,
    integer,
    is_array,
    is_long_integer,
    is_object,
    may_have_long_integer,
)

MAX_DEPTH = 200

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_ONE_BRACKET = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class MalformedJson(ValueError):
    """Raised for JSON that is invalid or ambiguous. The message is a clause with the reason."""


def parse_json(body: bytes) -> Json:
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
