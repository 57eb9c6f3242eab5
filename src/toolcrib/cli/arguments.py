"""Strict parsing of tool names and arguments.

Must never guess: anything but plain JSON is rejected, with its position.
"""

import json
import sys
from typing import NoReturn

from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import SOURCES
from toolcrib.model.tools import ToolRef

_EXAMPLE = """Pass a quoted JSON object: '{"city": "Ulm"}'."""


def parse_ref(text: str) -> ToolRef:
    """Parse `server/tool`; raise `cli.usage` if malformed."""
    ref = ToolRef.parse(text)
    if ref is None:
        raise InvalidRequest(
            "cli.usage", f"{text!r} is not SERVER/TOOL.", "Run `toolcrib tools list` to see all tools."
        )
    return ref


def check_source(source: str | None) -> None:
    """Raise `cli.usage` if the source is unknown."""
    if source is not None and source not in SOURCES:
        raise InvalidRequest("cli.usage", f"{source!r} is not a source.", f"Choose one of {', '.join(SOURCES)}.")


def parse_arguments(text: str) -> JsonObject:
    """Parse a JSON object; raise `cli.usage` for anything else."""
    try:
        value: Json = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InvalidRequest("cli.usage", f"The arguments are not JSON: {error.msg} at {place}.", _EXAMPLE) from error
    except RecursionError as error:
        raise InvalidRequest("cli.usage", "The arguments are nested too deeply.") from error
    except ValueError as error:
        raise InvalidRequest("cli.usage", f"The arguments are not JSON: {error}.", _EXAMPLE) from error
    match value:
        case {**members}:
            return members
        case _:
            raise InvalidRequest("cli.usage", "The arguments are not a JSON object.", _EXAMPLE)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _unique(pairs: list[tuple[str, Json]]) -> JsonObject:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {double!r} appears twice")
    return value


def read_input(limit: int) -> str:
    """Return standard input as text; raise `request.too_large` above the limit."""
    content = sys.stdin.buffer.read(limit + 1)
    if len(content) > limit:
        raise InvalidRequest("request.too_large", f"The arguments are longer than {limit} bytes.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest("cli.usage", f"The arguments are not UTF-8 at byte {error.start}.") from error
