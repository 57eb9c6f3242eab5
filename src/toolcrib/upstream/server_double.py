"""Recordings of servers, and doubles that answer from them without the server.

A recording is JSON: what the server offers, and the results of calls. The double speaks MCP on standard input and
output. A call that was not recorded is an error result that names the nearest recorded call of the same tool.

Must never start or contact anything.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from difflib import unified_diff
from typing import Final

import orjson

from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import Json, JsonObject, canonical, is_array, is_object, storable
from toolcrib.model.protocol import (
    HANDSHAKE_VERSION,
    INVALID_PARAMS,
    LEGACY_VERSIONS,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    RESOURCE_NOT_FOUND,
)
from toolcrib.model.sources import ProtocolError
from toolcrib.model.tools import CallResult
from toolcrib.upstream.offer import PROMPTS, RESOURCES, TEMPLATES, TOOLS, Kind, Offer

FORMAT: Final = 1
_LISTS: Final[Mapping[str, Kind]] = {kind.method: kind for kind in (TOOLS, PROMPTS, RESOURCES, TEMPLATES)}
_CONTENT: Final = {"prompts/get": INVALID_PARAMS, "resources/read": RESOURCE_NOT_FOUND}
"""Requests that are answered like calls, with the error for those that were not recorded."""


def server_recording(name: str, offer: Offer, exchanges: Iterable[JsonObject]) -> JsonObject:
    """Return a recording of what a server offers. `exchanges` have a `method`, its `params` and the `result`."""
    return {
        "format": FORMAT,
        "kind": "server",
        "name": name,
        "capabilities": {
            key: value for key, value in offer.capabilities.items() if key in ("tools", "prompts", "resources")
        },
        "serverInfo": offer.server_info,
        "instructions": offer.instructions,
        **{kind.member: list(offer.list_of(kind)) for kind in _LISTS.values()},
        "exchanges": list(exchanges),
    }


def parse_server_recording(content: bytes, name: str = "The file") -> JsonObject:
    """Return a recording of a server. Raises `recording.invalid`."""
    try:
        value: Json = orjson.loads(content)
    except orjson.JSONDecodeError:
        value = None
    is_recording = is_object(value) and value.get("kind") == "server" and is_array(value.get("exchanges"))
    if not is_object(value) or not is_recording:
        raise InvalidRequest("recording.invalid", f"{name} is not a recording of a server.")
    return value


class ServerDouble:
    """Answers the messages of one client from a recording; equal requests in their recorded order."""

    def __init__(self, recording: JsonObject) -> None:
        self._recording = recording
        self._results: defaultdict[bytes, deque[JsonObject]] = defaultdict(deque)
        for each in recording["exchanges"]:
            self._results[_key(each["method"], each["params"])].append(each["result"])

    def answer_line(self, line: bytes) -> bytes | None:
        """Return the answer to one line, or None if it needs none."""
        try:
            message: Json = orjson.loads(line)
        except orjson.JSONDecodeError:
            return _encode({"id": None, "error": {"code": PARSE_ERROR, "message": "This is not JSON."}})
        if not is_object(message) or "id" not in message or "method" not in message:
            return None
        params: Json = message.get("params")
        try:
            result = self.answer(str(message["method"]), params if is_object(params) else {})
        except ProtocolError as error:
            return _encode({"id": message["id"], "error": {"code": error.code, "message": error.message}})
        return _encode({"id": message["id"], "result": result})

    def answer(self, method: str, params: JsonObject) -> JsonObject:
        """Return the result of a request. Raises `ProtocolError`."""
        if method == "initialize":
            return self._introduction(params)
        if method == "ping":
            return {}
        if method in _LISTS:
            member = _LISTS[method].member
            return {member: self._recording.get(member, [])}
        if method != "tools/call" and method not in _CONTENT:
            raise ProtocolError(METHOD_NOT_FOUND, f"There is no {method} in this recording.")
        found = self._results.get(_key(method, params))
        if found:
            return found.popleft() if len(found) > 1 else found[0]
        message = self._missing_message(method, params)
        if method == "tools/call":
            return CallResult.error(message).to_json()
        raise ProtocolError(_CONTENT[method], message)

    def _introduction(self, params: JsonObject) -> JsonObject:
        asked: Json = params.get("protocolVersion")
        answer: JsonObject = {
            "protocolVersion": asked if asked in LEGACY_VERSIONS else HANDSHAKE_VERSION,
            "capabilities": self._recording.get("capabilities", {}),
            "serverInfo": self._recording.get("serverInfo") or {"name": self._recording["name"], "version": "0"},
        }
        instructions: Json = self._recording.get("instructions")
        return answer | ({"instructions": instructions} if instructions else {})

    def _missing_message(self, method: str, params: JsonObject) -> str:
        subject = params.get("name") or params.get("uri")
        same = [
            each["params"]
            for each in self._recording["exchanges"]
            if each["method"] == method and subject == (each["params"].get("name") or each["params"].get("uri"))
        ]
        message = f"The recording has no {method} of {subject} with these arguments."
        if not same:
            return f"{message} It has none of this name."
        wanted = _lines(params)
        close = max(same, key=lambda each: len(set(_lines(each)) & set(wanted)))
        return "\n".join((message, *unified_diff(_lines(close), wanted, "recorded", "requested", lineterm="")))


def _key(method: str, params: JsonObject) -> bytes:
    plain = {key: value for key, value in params.items() if key != "_meta"}
    if method == "tools/call":
        plain.setdefault("arguments", {})
    return canonical([method, storable(plain)])


def _lines(params: JsonObject) -> list[str]:
    arguments: Json = params.get("arguments")
    given = arguments if is_object(arguments) else {}
    return [f"{name}: {canonical(storable(value)).decode()}" for name, value in sorted(given.items())]


def _encode(message: JsonObject) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", **message}) + b"\n"
