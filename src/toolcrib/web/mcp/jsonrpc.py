"""JSON-RPC messages and the rules of both protocol eras: headers, requests to clients, log levels.

Pure functions on bytes and headers, without the SDK, whose import takes longer than starting the crib. A valid message
is one object with known members, an id that is a string or an integer, and no look-alike keys.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from toolcrib.model.json import Json, JsonObject, MalformedJson, dumps, is_object, parse_strict
from toolcrib.model.protocol import (
    CAPABILITIES_KEY,
    HEADER_MISMATCH,
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
from toolcrib.model.text import normalized

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

    def body(self, request_id: "RequestId | None") -> bytes:
        """Return the serialized JSON-RPC error response."""
        error: JsonObject = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        return dumps({"jsonrpc": "2.0", "id": request_id, "error": error})


RequestId = str | int


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
        token: Any = self.meta.get("progressToken")
        return token if _is_id(token) else None


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
    if "id" in message and not _is_id(message["id"]):
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


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


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
        if name is not None and decode_header(headers.get(b"mcp-name")) != name:
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
