"""Recordings with members of another type are rejected when they are read."""

import json
from typing import Any

import pytest

from toolcrib.agents.sessions.recording.recording import parse_recording
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject, is_object

TOOL: JsonObject = {
    "server": "toolcrib",
    "name": "ping",
    "ref": "toolcrib/ping",
    "kind": "python",
    "definition": {"description": "Ping.", "inputSchema": {"type": "object"}},
    "marks": [],
}
BRIEF: JsonObject = {"session": "s", "cwd": "/w", "mode": "default", "prompt": "", "model": None, "ownTools": []}
LINES: list[JsonObject] = [
    {"kind": "open", "runner": "claude", "home": "/h", "brief": {**BRIEF, "limits": {}, "tools": [TOOL]}},
    {"kind": "prompt", "text": "Go."},
    {"kind": "message", "hash": "h", "message": {}},
    {"kind": "model", "request": {"model": "m", "messages": ["h"], "tools": "t"}, "answer": {}},
    {"kind": "call", "toolCallId": "1", "tool": "ping", "arguments": {}, "result": {}, "durationMs": 1},
    {"kind": "event", "event": {"kind": "done", "seq": 1}},
]
FREE = {"kind", "mode", "model", "result", "seq", "limits", "durationMs"}


def recording_lines(lines: Any) -> list[bytes]:
    return [json.dumps(line).encode() for line in lines]


def damaged_variants(value: Any, bad: Any) -> list[Any]:
    """Return every variant of a value with one member replaced."""
    found: list[Any] = []
    for key, item in (value if is_object(value) else {}).items():
        if key not in FREE:
            found.append({**value, key: bad})
        found += [{**value, key: each} for each in damaged_variants(item, bad)]
    return found


def test_valid_recording_is_read() -> None:
    assert parse_recording(recording_lines(LINES)).prompts == ("Go.",)


@pytest.mark.parametrize("bad", [None, 7, True, [[]]])
def test_recording_with_a_member_of_another_type_is_rejected(bad: Any) -> None:
    variants = [
        [*LINES[:n], each, *LINES[n + 1 :]] for n, line in enumerate(LINES) for each in damaged_variants(line, bad)
    ]
    assert len(variants) > 10
    for lines in variants:
        with pytest.raises(InvalidRequest, match="is not a recording of a session, or is damaged"):
            parse_recording(recording_lines(lines))


@pytest.mark.parametrize("raw", [b"", b"[]", b"null", b"\xff", b"[" * 5000, b"{}"])
def test_file_that_is_not_a_recording_is_rejected(raw: bytes) -> None:
    with pytest.raises(InvalidRequest, match="is not a recording"):
        parse_recording([raw])
