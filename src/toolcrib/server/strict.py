"""JSON from outside, read strictly: one text has one meaning, or it is refused.

`orjson` refuses what is not JSON at all: bad UTF-8, a byte order mark, NaN, lone surrogates, numbers beyond a double,
a second document. Left to do here: nesting, repeated keys, and integers that would silently become floats. The last two
leave traces: a key that was dropped is missing with its quotes in what `orjson` writes back, and an integer that is too
large has many digits. Only texts in which these traces cannot be told are read again by `json`, which lets us see every
pair of keys.

Above: the routes of `server.api` and the MCP endpoint. Below: nothing of ours. It must never guess what was meant.
"""

import json
import re

import orjson

from toolcrib.model.json import Json

MAX_DEPTH = 200

_ONE_DIGIT = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * 19
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_ONE_BRACKET = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**64 - 1


class MalformedJson(ValueError):
    """The text is not JSON that has exactly one meaning; the message says why, in a sentence part."""


def parse_json(body: bytes) -> Json:
    """The one value that this text stands for; raises `MalformedJson`."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise MalformedJson(str(error)) from None
    if len(body) > 2 * MAX_DEPTH and body.count(b"[") + body.count(b"{") > MAX_DEPTH and _depth_exceeds(body):
        raise MalformedJson(f"nesting is deeper than {MAX_DEPTH} levels")
    if not _lost_nothing(body, orjson.dumps(value)):
        _read_every_pair(body.decode())
    return value


def _lost_nothing(body: bytes, written: bytes) -> bool:
    """Whether it is certain that the value of this text, written again, has all its keys and numbers.

    Without a backslash every quote is one end of a string, in both texts.
    """
    if written == body:
        return True
    if b"\\" in body or body.count(b'"') != written.count(b'"'):
        return False
    return body.translate(_ONE_DIGIT).find(_LONG_NUMBER) < 0


def _depth_exceeds(body: bytes) -> bool:
    """Whether valid JSON nests too deep: each pass takes the innermost pair of brackets away, everywhere."""
    brackets = _STRING.sub(b"", body).translate(_ONE_BRACKET, _NOT_BRACKETS)
    for _ in range(MAX_DEPTH):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _without_repeats(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """One object, read pair by pair."""
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


def _small_integer(digits: str) -> int:
    """One integer; 64 bits hold at most 20 characters, sign included, so longer texts are not even converted."""
    value = int(digits) if len(digits) <= 20 else _MAX_INTEGER + 1
    if not _MIN_INTEGER <= value <= _MAX_INTEGER:
        raise MalformedJson("an integer does not fit into 64 bits")
    return value


_read_every_pair = json.JSONDecoder(object_pairs_hook=_without_repeats, parse_int=_small_integer).decode
