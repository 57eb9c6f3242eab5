"""Headers as they are sent: no value can start another header."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.model.errors import InvalidRequest
from toolcrib.model.protocol import encode_header
from toolcrib.upstream.http.requests import header_lines


def test_names_are_lower_case_and_values_are_stripped() -> None:
    assert header_lines({"X-Key": " a b ", "y": "é"}) == b"x-key: a b\r\ny: \xe9\r\n"


@pytest.mark.parametrize(
    ("name", "value"),
    [("x", "a\r\nb: c"), ("x", "a\nb"), ("x", "a\0"), ("x", "ł"), ("x y", "a"), ("x:", "a"), ("", "a"), ("x\r\n", "a")],
)
def test_invalid_header_is_rejected(name: str, value: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        header_lines({name: value})
    assert caught.value.code == "server.invalid"
    assert value not in caught.value.message or value == "a"


@given(st.text(max_size=50))
def test_encoded_text_is_always_one_header(text: str) -> None:
    lines = header_lines({"mcp-name": encode_header(text.encode("utf-8", "ignore").decode())})
    assert lines.count(b"\r\n") == 1
    assert lines.count(b"\n") == 1
