"""Answers of the Messages API: one message from its stream of events, and the stream of a message.

A recording keeps the message, not the pieces: a secret that arrives in pieces could not be masked.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Final

import orjson

from toolcrib.model.json import Json, JsonObject, is_object

CHUNK: Final = 48
"""Characters of a piece in a replayed stream."""
_JSON_PIECES: Final = "partial_json"


def message_of_stream(body: bytes) -> JsonObject | None:
    """Return the message of a stream; None if it broke off."""
    message: JsonObject | None = None
    pieces: dict[int, str] = {}
    is_whole = False
    for event in _events(body):
        kind: Json = event.get("type")
        if kind == "message_start" and is_object(event.get("message")):
            message = {**event["message"], "content": []}
        elif message is None:
            continue
        elif kind == "content_block_start":
            message["content"].append(dict(event["content_block"]))
        elif kind == "content_block_delta":
            _add(message["content"][int(event["index"])], event["delta"], pieces, int(event["index"]))
        elif kind == "content_block_stop" and int(event["index"]) in pieces:
            block, whole = message["content"][int(event["index"])], pieces.pop(int(event["index"]))
            block["input"] = orjson.loads(whole) if whole.strip() else {}
        elif kind == "message_delta":
            usage: JsonObject = {**message.get("usage", {}), **(event.get("usage") or {})}
            message = {**message, **(event.get("delta") or {}), "usage": usage}
        elif kind == "message_stop":
            is_whole = True
    return message if is_whole else None


def message_of_body(body: bytes) -> JsonObject | None:
    """Return the message of an answer that is not a stream."""
    try:
        message: Json = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return message if is_object(message) and message.get("type") == "message" else None


def stream_of_message(message: JsonObject) -> Iterator[bytes]:
    """Yield the encoded events of a message, always in the same pieces."""
    usage = {**message.get("usage", {}), "output_tokens": 1}
    yield _encode("message_start", message={**message, "content": [], "stop_reason": None, "usage": usage})
    for index, block in enumerate(message.get("content", ())):
        empty, deltas = _pieces(block)
        yield _encode("content_block_start", index=index, content_block=empty)
        for delta in deltas:
            yield _encode("content_block_delta", index=index, delta=delta)
        yield _encode("content_block_stop", index=index)
    stop = {"stop_reason": message.get("stop_reason"), "stop_sequence": message.get("stop_sequence")}
    yield _encode("message_delta", delta=stop, usage=message.get("usage", {}))
    yield _encode("message_stop")


def _events(body: bytes) -> Iterable[JsonObject]:
    for line in body.decode("utf-8", "replace").splitlines():
        if line.startswith("data:"):
            try:
                event: Json = orjson.loads(line[5:])
            except orjson.JSONDecodeError:
                continue
            if is_object(event):
                yield event


def _add(block: JsonObject, delta: JsonObject, pieces: dict[int, str], index: int) -> None:
    match delta:
        case {"type": "text_delta", "text": str(text)}:
            block["text"] = block.get("text", "") + text
        case {"type": "thinking_delta", "thinking": str(text)}:
            block["thinking"] = block.get("thinking", "") + text
        case {"type": "signature_delta", "signature": str(text)}:
            block["signature"] = block.get("signature", "") + text
        case {"type": "input_json_delta", "partial_json": str(text)}:
            pieces[index] = pieces.get(index, "") + text
        case _:
            pass


def _pieces(block: JsonObject) -> tuple[JsonObject, list[JsonObject]]:
    match block:
        case {"type": "text", "text": str(text)}:
            return {**block, "text": ""}, _split("text_delta", "text", text)
        case {"type": "tool_use" | "server_tool_use", "input": arguments}:
            return {**block, "input": {}}, _split("input_json_delta", _JSON_PIECES, json.dumps(arguments))
        case {"type": "thinking", "thinking": str(thought)}:
            signed: JsonObject = {"type": "signature_delta", "signature": block.get("signature", "")}
            return {**block, "thinking": "", "signature": ""}, [*_split("thinking_delta", "thinking", thought), signed]
        case _:
            return block, []


def _split(kind: str, field: str, whole: str) -> list[JsonObject]:
    return [{"type": kind, field: whole[at : at + CHUNK]} for at in range(0, len(whole), CHUNK)]


def _encode(kind: str, **fields: Json) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
