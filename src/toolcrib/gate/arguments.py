"""The arguments of a call: encoded, and completed with defaults."""

from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject, canonical
from toolcrib.model.tools import Tool


def encode(arguments: JsonObject) -> bytes:
    """Return the canonical JSON of the arguments. Raises `InvalidRequest` for values that are not JSON."""
    try:
        return canonical(arguments)
    except TypeError as error:
        raise InvalidRequest("tool.arguments_invalid", f"The arguments are not JSON: {error}.") from error


def judged(tool: Tool | None, arguments: JsonObject, encoded: bytes) -> tuple[JsonObject, bytes]:
    """Return the arguments with the schema's defaults filled in, and their canonical JSON.

    A call that a condition or a person judges is bound to these arguments and sent with them, so what runs is what was
    judged. A call decided without its arguments is sent unchanged.
    """
    filled = arguments if tool is None else tool.filled(arguments)
    return (arguments, encoded) if filled is arguments else (filled, encode(filled))
