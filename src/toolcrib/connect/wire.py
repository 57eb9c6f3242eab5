"""Messages of JSON-RPC as bytes: one line in, one object out, and what can still be learned of a line that is broken.

Above: `stdio` and `greet`. Below: orjson. Pure functions. It must never guess at content: a mended line has the
characters that cannot be carried replaced, and nothing else.
"""

import re
from typing import Final

import orjson

from toolcrib.model.json import Json, JsonObject, is_array, is_object
from toolcrib.model.sources import ProtocolError

RequestId = int | str

INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INTERNAL_ERROR: Final = -32603
SERVER_BUSY: Final = -32000

_BOM = b"\xef\xbb\xbf"
_STARTS = (b'{"jsonrpc"', b'{"id"', b'{"result"', b'{"method"', b'{"error"')
_SURROGATES = re.compile(
    r"\\\\"  # an escaped backslash: what follows it is text
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair: one character
    r"|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_ID_FIRST = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*,\s*"(?:jsonrpc|result|error)"'
)
_ID_LAST = re.compile(
    rb'[}\]"el\d]\s*,\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$'
)


def read_line(line: bytes) -> list[JsonObject]:
    """The messages of one line: one, or those of a batch. Raises `ValueError` if there is none.

    A byte order mark and a carriage return are passed over, bytes that are no UTF-8 and halves of surrogate pairs
    become U+FFFD, and a text without line feed in front of a message does not spoil it.
    """
    try:
        parsed = orjson.loads(line)
    except orjson.JSONDecodeError:
        parsed = _mended(line)
    if is_object(parsed):
        return [parsed]
    if is_array(parsed) and parsed and all(map(is_object, parsed)):
        return list(parsed)
    raise ValueError("The line is no object of JSON-RPC.")


def _mended(line: bytes) -> Json:
    line = line.removeprefix(_BOM)
    starts = [at for at in (line.find(start) for start in _STARTS) if at > 0]
    for start in (0, *sorted(starts)[:1]):
        text = line[start:].decode("utf-8", "replace")
        try:
            return orjson.loads(_SURROGATES.sub(_without_halves, text))
        except orjson.JSONDecodeError:
            continue
    raise ValueError("The line is not JSON.")


def _without_halves(found: re.Match[str]) -> str:
    return "\\ufffd" if found["lone"] else found[0]


def answered_id(head: bytes, tail: bytes) -> int | None:
    """Which request a line answers that cannot be read: as its beginning says, or its end."""
    found = _ID_FIRST.match(head.removeprefix(_BOM)) or _ID_LAST.search(tail)
    return int(found[1]) if found else None


def request(request_id: RequestId, method: str, params: JsonObject | None) -> bytes:
    """A request as a line."""
    if params is None:
        return orjson.dumps({"jsonrpc": "2.0", "id": request_id, "method": method}) + b"\n"
    return orjson.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}) + b"\n"


def notification(method: str, params: JsonObject | None) -> bytes:
    """A notification as a line."""
    message: JsonObject = {"jsonrpc": "2.0", "method": method}
    return orjson.dumps(message if params is None else {**message, "params": params}) + b"\n"


def result(request_id: RequestId, value: JsonObject) -> bytes:
    """The result of a server's request as a line."""
    return orjson.dumps({"jsonrpc": "2.0", "id": request_id, "result": value}) + b"\n"


def error(request_id: RequestId, code: int, message: str, data: Json = None) -> bytes:
    """The refusal of a server's request as a line."""
    body: JsonObject = {"code": code, "message": message}
    return (
        orjson.dumps({"jsonrpc": "2.0", "id": request_id, "error": body if data is None else {**body, "data": data}})
        + b"\n"
    )


def as_id(value: Json) -> RequestId | None:
    """An id as the protocol has it, else None: `1.0`, `true` and `null` are none, and `"1"` is not `1`."""
    return value if type(value) is int or type(value) is str else None


def params_of(message: JsonObject) -> JsonObject:
    """The params of a message, empty if it has none."""
    params: Json = message.get("params")
    return params if is_object(params) else {}


def error_of(error: Json) -> ProtocolError:
    """The error that a message answers with, whatever is missing of it."""
    if not is_object(error):
        return ProtocolError(INTERNAL_ERROR, str(error))
    code: Json = error.get("code")
    return ProtocolError(code if type(code) is int else INTERNAL_ERROR, str(error.get("message")), error.get("data"))


def progress_of(params: JsonObject) -> tuple[float, float | None, str | None] | None:
    """How far a call has come, as a notification says it; None if it does not."""
    done, message = _number(params.get("progress")), params.get("message")
    if done is None:
        return None
    return done, _number(params.get("total")), message if isinstance(message, str) else None


def _number(value: Json) -> float | None:
    return float(value) if type(value) is int or type(value) is float else None
