"""Converts a message to the stream events of the Messages API, in order."""

import json
from collections.abc import Iterator
from typing import NamedTuple

from toolcrib.model.json import JsonObject


class StreamEvent(NamedTuple):
    """One event: its kind and its data, which repeats the kind."""

    kind: str
    data: JsonObject

    def encode(self) -> bytes:
        """Return the event in `text/event-stream` format."""
        return f"event: {self.kind}\ndata: {json.dumps(self.data)}\n\n".encode()


def stream_events(message: JsonObject, chunk: int) -> Iterator[StreamEvent]:
    """Yield the events of a message, with deltas of `chunk` characters."""
    usage = {**message["usage"], "output_tokens": 1}
    yield _event("message_start", message={**message, "content": [], "stop_reason": None, "usage": usage})
    for index, block in enumerate(message["content"]):
        empty, deltas = _pieces(block, chunk)
        yield _event("content_block_start", index=index, content_block=empty)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]}
    yield _event("message_delta", delta=stop, usage=message["usage"])
    yield _event("message_stop")


def _event(kind: str, **fields: object) -> StreamEvent:
    return StreamEvent(kind, {"type": kind, **fields})


def _pieces(block: JsonObject, chunk: int) -> tuple[JsonObject, list[JsonObject]]:
    """Return the initial block and its deltas."""
    match block:
        case {"type": "text", "text": str(text)}:
            return {**block, "text": ""}, _split("text_delta", "text", text, chunk)
        case {"type": "tool_use", "input": arguments}:
            return {**block, "input": {}}, _split("input_json_delta", "partial_json", json.dumps(arguments), chunk)
        case {"type": "thinking", "thinking": str(thought), "signature": str(signature)}:
            signed: JsonObject = {"type": "signature_delta", "signature": signature}
            spoken = _split("thinking_delta", "thinking", thought, chunk)
            return {**block, "thinking": "", "signature": ""}, [*spoken, signed]
        case _:
            return block, []


def _split(kind: str, field: str, whole: str, chunk: int) -> list[JsonObject]:
    return [{"type": kind, field: whole[at : at + chunk]} for at in range(0, len(whole), chunk)]
