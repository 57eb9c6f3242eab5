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
