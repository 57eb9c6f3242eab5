"""JSON-RPC messages of both sides: strict reading of clients, lenient reading of servers, and what the crib sends.

Also the rules of both protocol eras on headers, and the trace context of a request. Pure functions on bytes and
headers, without the SDK, whose import takes longer than starting the crib.

A client's message is one object with known members, an id that is a string or an integer, and no look-alike keys. A
server's line may be broken. Must never guess at its content: recovery replaces undecodable characters and nothing else.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson

from toolcrib.model.json import Json, JsonObject, MalformedJson, dumps, is_array, is_object, loads, parse_strict
from toolcrib.model.observing import Trace
from toolcrib.model.protocol import (
    CAPABILITIES_KEY,
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LEGACY_VERSIONS,
    META,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    MODERN_VERSION,
    NAMED_BY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    VERSION_KEY,
    Era,
)
from toolcrib.model.sources import ProtocolError
from toolcrib.model.text import normalized

RequestId = int | str

SERVER_BUSY: Final = -32000

ANSWER_WAIT = 600.0
"""Seconds a client has to answer a server's request."""


_CLIENT_CAPABILITIES = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}

_MODERN_STATUS = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
_REQUEST_MEMBERS = frozenset({"jsonrpc", "id", "method", "params"})
_RESPONSE_MEMBERS = frozenset({"jsonrpc", "id", "result", "error"})
_KNOWN_PARAMS = frozenset(
    {"name", "arguments", META, "cursor", "inputResponses", "requestState", "uri", "ref", "argument", "level"}
)
_FOLDED_PARAMS = frozenset(known.casefold() for known in _KNOWN_PARAMS)
_BASE64 = re.compile(r"=\?base64\?(.*)\?=")

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

_TRACE_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_TRACE_STATE = re.compile(r"[\x20-\x7e]{1,512}")
_NO_META: JsonObject = {}


class RpcError(Exception):
    """A protocol error, returned as a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def status(self, era: Era) -> int:
        """Return the HTTP status. The modern era has one per code, the legacy era 400 for malformed messages only."""
        if era == "modern" or self.code in (PARSE_ERROR, INVALID_REQUEST):
            return _MODERN_STATUS.get(self.code, 200)
        return 200

    def body(self, request_id: RequestId | None) -> bytes:
        """Return the serialized JSON-RPC error response."""
        error: JsonObject = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        return dumps({"jsonrpc": "2.0", "id": request_id, "error": error})


class Message(NamedTuple):
    """One message of a client.

    `id` is None for a notification. `method` is empty for a response, which is in `reply`. `meta` is the `_meta` of the
    params, or empty.
    """

    method: str
    id: RequestId | None
    params: JsonObject
    meta: JsonObject
    reply: JsonObject | None = None

    @property
    def progress_token(self) -> RequestId | None:
        """The token for progress notifications, or None if the client did not request them."""
        return as_id(self.meta.get("progressToken"))


def read_message(body: bytes) -> Message:
    """Parse a body that must be exactly one JSON-RPC message. Raises `RpcError`."""
    try:
        message = parse_strict(body)
    except MalformedJson as error:
        raise RpcError(PARSE_ERROR, f"Parse error: {error}") from error
    if not is_object(message) or message.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, "The body must be one JSON-RPC 2.0 message object.")
    if "method" not in message:
        return _read_response(message)
    method, params = message["method"], message.get("params", {})
    if not isinstance(method, str) or not method or not message.keys() <= _REQUEST_MEMBERS:
        raise RpcError(INVALID_REQUEST, "A request has the members jsonrpc, id, method and params, and no others.")
    if "id" in message and as_id(message["id"]) is None:
        raise RpcError(INVALID_REQUEST, "A request's id must be a string or an integer.")
    if not is_object(params):
        raise RpcError(INVALID_REQUEST, "params must be an object.")
    _refuse_lookalikes(params)
    meta: Json = params.get(META)
    return Message(method, message.get("id"), params, meta if is_object(meta) else {})


def _read_response(message: JsonObject) -> Message:
    if not message.keys() <= _RESPONSE_MEMBERS or ("result" in message) == ("error" in message):
        raise RpcError(INVALID_REQUEST, "The body must be one JSON-RPC request, notification or response.")
    reply = message.get("result", message.get("error"))
    if not is_object(reply):
        raise RpcError(INVALID_REQUEST, "The result or error of a response must be an object.")
    return Message("", message.get("id"), {}, {}, message)


def _refuse_lookalikes(params: Mapping[str, Json]) -> None:
    """Raise for a key that another parser could take for a known one: other case, other normalization, trailing NUL."""
    if params.keys() <= _KNOWN_PARAMS:
        return
    for key in params.keys() - _KNOWN_PARAMS:
        plain = normalized("NFKC", key.replace("\0", "")).casefold().strip()
        if plain in _FOLDED_PARAMS:
            raise RpcError(INVALID_REQUEST, f"params has a key that looks like {plain!r} but is not.")


def era_of(version: str | None) -> Era:
    """Return the era that the protocol version selects. Unknown versions are rejected by the modern rules."""
    return "legacy" if version is None or version in LEGACY_VERSIONS else "modern"


def check_modern(message: Message, headers: Mapping[bytes, bytes]) -> None:
    """Raise `RpcError` unless the envelope is complete and the routing headers match the body."""
    meta = message.meta
    if VERSION_KEY not in meta or CAPABILITIES_KEY not in meta:
        missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
        raise RpcError(INVALID_PARAMS, f"params._meta is missing {' and '.join(missing)}.")
    version = meta[VERSION_KEY]
    if _text(headers.get(b"mcp-protocol-version")) != version:
        raise RpcError(HEADER_MISMATCH, "The header MCP-Protocol-Version does not match the body.")
    if _text(headers.get(b"mcp-method")) != message.method:
        raise RpcError(HEADER_MISMATCH, "The header Mcp-Method does not match the body.")
    if message.method in NAMED_BY:
        name: Any = message.params.get(NAMED_BY[message.method])
        # Clients of tasks exist that do not send the header, and the extension lets a server accept that.
        is_left_out = b"mcp-name" not in headers and message.method.startswith("tasks/")
        if name is not None and not is_left_out and decode_header(headers.get(b"mcp-name")) != name:
            raise RpcError(HEADER_MISMATCH, "The header Mcp-Name does not match the body.")
    if version != MODERN_VERSION:
        data = {"supported": [MODERN_VERSION], "requested": version}
        raise RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
    if not isinstance(meta[CAPABILITIES_KEY], dict):
        raise RpcError(INVALID_PARAMS, f"params._meta: {CAPABILITIES_KEY} must be an object.")


def _text(value: bytes | None) -> str | None:
    # Whitespace around a field value is not part of it, and the parser keeps the trailing part.
    return None if value is None else value.strip(b" \t").decode("latin-1")


def decode_header(value: bytes | None) -> str | None:
    """Decode a header value that may be wrapped as `=?base64?…?=`. Returns None for an invalid wrapping."""
    text = _text(value)
    if text is None or not text.startswith("=?base64?") or (wrapped := _BASE64.fullmatch(text)) is None:
        return text
    try:
        raw = base64.b64decode(wrapped[1], validate=True)
        return raw.decode() if base64.b64encode(raw).decode() == wrapped[1] else None
    except (binascii.Error, UnicodeDecodeError):
        return None


def capability_for(method: str) -> str | None:
    """Return the client capability that this request needs, or None if no client accepts it."""
    return _CLIENT_CAPABILITIES.get(method)


def can_be_asked(capabilities: JsonObject) -> bool:
    """Return whether a client with these capabilities accepts any request."""
    return not capabilities.keys().isdisjoint(_CLIENT_CAPABILITIES.values())


def trace_of(headers: Mapping[bytes, bytes], meta: JsonObject = _NO_META) -> Trace | None:
    """Return the W3C trace context of a message with this `_meta` in a request with these headers, if there is any.

    `_meta` comes first, because an HTTP request can carry several messages. An invalid `traceparent` is ignored, as the
    standard demands.
    """
    if "traceparent" in meta:
        return _checked_trace(meta["traceparent"], meta.get("tracestate"))
    parent = headers.get(b"traceparent")
    if parent is None:
        return None
    state = headers.get(b"tracestate")
    return _checked_trace(parent.decode("latin-1"), state.decode("latin-1") if state is not None else None)


def _checked_trace(parent: Json, state: Json) -> Trace | None:
    if not isinstance(parent, str) or not _TRACE_PARENT.fullmatch(parent):
        return None
    if isinstance(state, str) and _TRACE_STATE.fullmatch(state):
        return {"traceparent": parent, "tracestate": state}
    return {"traceparent": parent}


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
