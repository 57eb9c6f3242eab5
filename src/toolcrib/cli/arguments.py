"""What a person types as a tool and its arguments, read strictly: one meaning or none.

Above: `tools`. Below: `errors`, `model`. It must never guess: what is not plain JSON is refused, with the place.
"""

import json
import sys
from typing import NoReturn

from toolcrib.errors import InvalidRequest
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.principals import SOURCES
from toolcrib.model.tools import ToolRef

_EXAMPLE = """Write an object, in quotes for the shell: '{"city": "Ulm"}'."""


def parse_ref(text: str) -> ToolRef:
    """The tool that `server/tool` names."""
    ref = ToolRef.parse(text)
    if ref is None:
        raise InvalidRequest("cli.usage", f"{text!r} is not SERVER/TOOL.", "Run `toolcrib tools list` for the names.")
    return ref


def check_source(source: str | None) -> None:
    """Refuse a source there is none of."""
    if source is not None and source not in SOURCES:
        raise InvalidRequest("cli.usage", f"{source!r} is not a source.", f"Choose one of {', '.join(SOURCES)}.")


def parse_arguments(text: str) -> JsonObject:
    """The object that the JSON text holds."""
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
    raise ValueError(f"{name} is not a number in JSON")


def _unique(pairs: list[tuple[str, Json]]) -> JsonObject:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{double!r} is there twice")
    return value


def read_input(limit: int) -> str:
    """All of standard input, up to a limit."""
    content = sys.stdin.buffer.read(limit + 1)
    if len(content) > limit:
        raise InvalidRequest("request.too_large", f"The arguments are longer than {limit} bytes.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest("cli.usage", f"The arguments are not UTF-8 at byte {error.start}.") from error
