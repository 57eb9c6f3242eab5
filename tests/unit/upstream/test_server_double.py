"""Doubles of servers: recorded answers in order, and the nearest recorded call for an unknown one."""

import json
from typing import Any

import pytest

from toolcrib.model.errors import InvalidRequest
from toolcrib.upstream.offer import Offer
from toolcrib.upstream.server_double import ServerDouble, parse_server_recording, server_recording

TOOL = {"name": "add", "description": "Add.", "inputSchema": {"type": "object"}}


def exchange(arguments: dict[str, Any], text: str) -> dict[str, Any]:
    """Return a recorded call of `add`."""
    result = {"content": [{"type": "text", "text": text}], "isError": False}
    return {"method": "tools/call", "params": {"name": "add", "arguments": arguments}, "result": result}


@pytest.fixture
def double() -> ServerDouble:
    """Return a double with three recorded calls, two of them equal."""
    offer = Offer(
        "legacy", "2025-11-25", {"tools": {}, "logging": {}}, {"name": "sums", "version": "1"}, "Add.", (TOOL,)
    )
    calls = [exchange({"a": 1, "b": 2}, "3"), exchange({"a": 5}, "5"), exchange({"a": 5}, "five")]
    return ServerDouble(parse_server_recording(json.dumps(server_recording("sums", offer, calls)).encode()))


def text_of(double: ServerDouble, arguments: dict[str, Any]) -> str:
    """Return the text with which the double answers a call."""
    return double.answer("tools/call", {"name": "add", "arguments": arguments, "_meta": {"x": 1}})["content"][0]["text"]


def test_double_replays_the_introduction_and_the_lists(double: ServerDouble) -> None:
    hello = double.answer("initialize", {"protocolVersion": "2025-06-18"})
    assert (hello["protocolVersion"], hello["serverInfo"]["name"]) == ("2025-06-18", "sums")
    assert (hello["capabilities"], hello["instructions"]) == ({"tools": {}}, "Add.")
    assert double.answer("tools/list", {}) == {"tools": [TOOL]}
    assert double.answer_line(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}') is None
    unknown = json.loads(double.answer_line(b'{"jsonrpc": "2.0", "id": 7, "method": "server/discover"}') or b"")
    assert (unknown["id"], unknown["error"]["code"]) == (7, -32601)


def test_equal_calls_are_answered_in_the_recorded_order(double: ServerDouble) -> None:
    assert text_of(double, {"b": 2, "a": 1}) == "3"
    assert [text_of(double, {"a": 5}) for _ in range(3)] == ["5", "five", "five"]


def test_unrecorded_call_is_an_error_with_the_nearest_recorded_one(double: ServerDouble) -> None:
    missed = double.answer("tools/call", {"name": "add", "arguments": {"a": 1, "b": 3}})
    assert missed["isError"] is True
    assert "-b: 2\n+b: 3" in missed["content"][0]["text"]
    other = double.answer("tools/call", {"name": "sub", "arguments": {}})
    assert "none of this name" in other["content"][0]["text"]


def test_other_files_are_not_recordings() -> None:
    for content in (b"[]", b"{", b'{"kind": "server"}'):
        with pytest.raises(InvalidRequest, match="not a recording of a server"):
            parse_server_recording(content)
