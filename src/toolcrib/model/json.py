"""JSON as Python sees it, and the one canonical form that digests are taken of.

Values of tools and results are passed through untouched, so they are typed as what they are: any JSON.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeGuard

import orjson

Json: TypeAlias = Any
"""Any JSON value: None, bool, int, float, str, list or dict of these."""

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object."""


def no_members() -> JsonObject:
    """An empty object, as a default; `dict[str, Any]` would try in vain, and at some cost, to note its type on it."""
    return {}


def is_object(value: Json) -> TypeGuard[JsonObject]:
    """Whether this JSON value is an object."""
    return isinstance(value, dict)


def is_array(value: Json) -> TypeGuard[Sequence[Json]]:
    """Whether this JSON value is an array; Python programs may also give a tuple for one."""
    return isinstance(value, (list, tuple))


def canonical(value: Json) -> bytes:
    """One byte form per value: sorted keys, no spaces, UTF-8.

    Raises `TypeError` for what is not JSON, a lone surrogate or an integer beyond 64 bits included.
    """
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def digest(value: Json) -> str:
    """Hex SHA-256 of the canonical form."""
    return hashlib.sha256(canonical(value)).hexdigest()


def storable(value: Json) -> Json:
    """The same where it is JSON; lone surrogates, as paths may have them, are written out, anything foreign is text."""
    try:
        orjson.dumps(value)
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
        orjson.dumps(value)
    except TypeError:
        return _written_out(str(value))
    return value
