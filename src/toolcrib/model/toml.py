"""Reads the crib's TOML files as values that JSON can represent.

TOML allows integers of any size and nesting as deep as the parser's stack. Such files are rejected here, before any
other component reads the value.

Invariant: raises only `ValueError`.
"""

import tomllib
from typing import Final

from toolcrib.model.json import DIGITS_LIMIT, JsonObject, dumps

_BEYOND_JSON: Final = f"an integer has more than {DIGITS_LIMIT} digits, or the text is nested too deeply"


def loads(text: str) -> JsonObject:
    """Parse TOML. Raises `ValueError` for invalid TOML, and for integers and nesting that JSON cannot represent."""
    try:
        table = tomllib.loads(text)
        dumps(table)
    except tomllib.TOMLDecodeError:
        raise
    except (RecursionError, TypeError, ValueError):
        raise ValueError(_BEYOND_JSON) from None
    return table
