"""JSON-RPC messages as lines of bytes, with recovery of broken lines.

Pure. Must never guess at content: recovery replaces undecodable characters and nothing else.
"""

import re
from typing import Final

import orjson

from toolcrib.model.json import Json, JsonObject, dumps, is_array, is_object, loads
from toolcrib.model.protocol import INTERNAL_ERROR
from toolcrib.model.sources import ProtocolError

RequestId = int | str

SERVER_BUSY: Final = -32000

_BOM = b"\xef\xbb\xbf"
_STARTS = (b'{"jsonrpc"', b'{"id"', b'{"result"', b'{"method"', b'{"error"')
_SURROGATES = re.compile(
    r"\\\\"  # an escaped backslash: what follows it is text
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a surrogate pair: one character
    r"|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_ID_FIRST = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*,\s*"(?:jsonrpc|result|error)"'
)
_ID_LAST = re.compile(
    rb'[}\]"el\d]\s*,\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$'
)


def read_line(line: bytes) -> list[JsonObject]:
    """Return the message in a line, or the messages of a batch. Raises `ValueError` if there is none.

    Ignores a byte order mark, a carriage return, and text before a message on the same line. Invalid UTF-8 and lone
    surrogates become U+FFFD.
    """
    try:
        parsed = loads(line)
    except orjson.JSONDecodeError:
        parsed = _repair(line)
    if is_object(parsed):
        return [parsed]
    if is_array(parsed) and parsed and all(map(is_object, parsed)):
        return list(parsed)
    raise ValueError("The line is no object of JSON-RPC.")


def _repair(line: bytes) -> Json:
    line = line.removeprefix(_BOM)
    starts = [at for at in (line.find(start) for start in _STARTS) if at > 0]
    for start in (0, *sorted(starts)[:1]):
        text = line[start:].decode("utf-8", "replace")
        try:
            return loads(_SURROGATES.sub(_without_halves, text))
        except orjson.JSONDecodeError:
            continue
    raise ValueError("The line is not JSON.")


def _without_halves(found: re.Match[str]) -> str:
    return "\\ufffd" if found["lone"] else found[0]


def answered_id(head: bytes, tail: bytes) -> int | None:
    """Return the id of the request that an unreadable line answers, from its beginning or its end."""
    found = _ID_FIRST.match(head.removeprefix(_BOM)) or _ID_LAST.search(tail)
    return int(found[1]) if found else None


def request(request_id: RequestId, method: str, params: JsonObject | None) -> bytes:
    """Serialize a request."""
    if params is None:
        return dumps({"jsonrpc": "2.0", "id": request_id, "method": method}) + b"\n"
    return dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}) + b"\n"


def notification(method: str, params: JsonObject | None) -> bytes:
    """Serialize a notification."""
    message: JsonObject = {"jsonrpc": "2.0", "method": method}
    return dumps(message if params is None else {**message, "params": params}) + b"\n"


def result(request_id: RequestId, value: JsonObject) -> bytes:
    """Serialize the result of a server's request."""
    return dumps({"jsonrpc": "2.0", "id": request_id, "result": value}) + b"\n"


def error(request_id: RequestId, code: int, message: str, data: Json = None) -> bytes:
    """Serialize an error response to a server's request."""
    body: JsonObject = {"code": code, "message": message}
    return (
        dumps({"jsonrpc": "2.0", "id": request_id, "error": body if data is None else {**body, "data": data}}) + b"\n"
    )


def as_id(value: Json) -> RequestId | None:
    """Return a valid request id, else None: `1.0`, `true` and `null` are invalid, and `"1"` is not `1`."""
    return value if type(value) is int or type(value) is str else None


def params_of(message: JsonObject) -> JsonObject:
    """Return the params of a message, empty if it has none."""
    params: Json = message.get("params")
    return params if is_object(params) else {}


def error_of(error: Json) -> ProtocolError:
    """Return the error of an error response, with defaults for missing members."""
    if not is_object(error):
        return ProtocolError(INTERNAL_ERROR, str(error))
    code: Json = error.get("code")
    return ProtocolError(code if type(code) is int else INTERNAL_ERROR, str(error.get("message")), error.get("data"))


def progress_of(params: JsonObject) -> tuple[float, float | None, str | None] | None:
    """Return progress, total and message of a progress notification, or None if it is invalid."""
    done, message = _number(params.get("progress")), params.get("message")
    if done is None:
        return None
    return done, _number(params.get("total")), message if isinstance(message, str) else None


def _number(value: Json) -> float | None:
    try:
        return float(value) if type(value) is int or type(value) is float else None
    except OverflowError:
        return None
