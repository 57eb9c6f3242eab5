"""Encodes the parts of audit records: their times, names and members."""

import time
from datetime import UTC, datetime
from functools import lru_cache

from toolcrib.base.masking.values import CUT
from toolcrib.model.json import JsonObject, dumps, storable

_LONGEST_NAME = 256
_THOUSANDTHS = [f".{number:03d}+00:00" for number in range(1000)]


def current_moment() -> str:
    """Return the current time in the format of `moment`, at a quarter of the cost."""
    seconds, thousandths = divmod(time.time_ns() // 1_000_000, 1000)
    return _second(seconds) + _THOUSANDTHS[thousandths]


@lru_cache(maxsize=1)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]


def bounded_name(name: str) -> str:
    """Truncate a name from outside, which may have any length."""
    return name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + CUT


def encoded_members(body: JsonObject) -> tuple[bytes, JsonObject]:
    """Return the members of an object as JSON, and the object. Values that are not JSON are replaced."""
    try:
        return dumps(body)[1:-1], body
    except TypeError:
        body = storable(body)
        return dumps(body)[1:-1], body
