"""JSON-RPC lines of stdio servers, including the id in a truncated reply."""

import json
import re

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.model import jsonrpc
from toolcrib.model.json import Json

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON))
def test_written_message_is_read_back_unchanged(message: dict[str, Json]) -> None:
    assert jsonrpc.read_line(json.dumps(message).encode()) == [message]
    assert jsonrpc.read_line(json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")) == [message]


@given(st.binary())
def test_any_line_is_read_or_raises_a_value_error(line: bytes) -> None:
    try:
        messages = jsonrpc.read_line(line)
    except ValueError:
        return
    assert all(isinstance(message, dict) for message in messages)


@given(
    st.text(max_size=20),
    st.lists(st.sampled_from(["\\ud800", "\\udfff", "\\\\", "\\ud83d\\ude00", "x"])),
)
def test_unpaired_surrogates_are_replaced(text: str, escapes: list[str]) -> None:
    line = b'{"a":' + json.dumps(text).encode()[:-1] + "".join(escapes).encode() + b'"}'
    (message,) = jsonrpc.read_line(line)
    assert message == {"a": re.sub("[\ud800-\udfff]", "\ufffd", json.loads(line)["a"])}
    orjson.dumps(message)


@pytest.mark.parametrize(
    "line", [b"", b"null", b"3", b'"text"', b"[]", b"[1]", b'[{"a":1},2]', b"{", b"{}}", b"Ready."]
)
def test_line_that_is_not_an_object_is_rejected(line: bytes) -> None:
    with pytest.raises(ValueError, match="The line"):
        jsonrpc.read_line(line)


@pytest.mark.parametrize(
    ("head", "tail", "found"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"a":"', b"", 7),
        (b'{"jsonrpc": "2.0", "id": 7, "error": {', b"", 7),
        (b'\xef\xbb\xbf{"id":7,"jsonrpc":"2.0","result":', b"", 7),
        (b'{"result":{"a":"', b'"}},"jsonrpc":"2.0","id":7}', 7),
        (b'{"result":{', b'},"id":7,"jsonrpc":"2.0"}\r', 7),
        (b'{"jsonrpc":"2.0","id":"7","result":', b"", None),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping"', b"", None),
        (b'{"jsonrpc":"2.0","method":"x","params":{"id":7,"result":1', b"}}", None),
        (b"x" * 512, b"x" * 512, None),
    ],
)
def test_id_is_found_in_a_truncated_reply(head: bytes, tail: bytes, found: int | None) -> None:
    assert jsonrpc.answered_id(head, tail) == found


@pytest.mark.parametrize("value", [None, True, False, 1.0, [1], {"a": 1}])
def test_only_integers_and_strings_are_ids(value: Json) -> None:
    assert jsonrpc.as_id(value) is None
    assert (jsonrpc.as_id(1), jsonrpc.as_id("1")) == (1, "1")
