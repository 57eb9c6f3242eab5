"""Headers that repeat arguments: when they are required, and when they are valid."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.inbound import mcp_param_headers, x_mcp_header_map

from toolcrib.model.json import JsonObject
from toolcrib.model.jsonrpc import RpcError
from toolcrib.model.protocol import HEADER_MISMATCH
from toolcrib.web.mcp.argument_headers import check_repeated, repeated_arguments

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "dry": {"type": "boolean", "x-mcp-header": "Dry"},
        "inner": {"type": "object", "properties": {"deep": {"type": "string", "x-mcp-header": "Deep"}}},
        "plain": {"type": "string"},
    },
}
values: st.SearchStrategy[JsonObject] = st.builds(
    dict[str, Any],
    region=st.text(alphabet=st.characters(codec="utf-8"), max_size=20) | st.none(),
    count=st.integers(-(2**63), 2**63) | st.none(),
    dry=st.booleans() | st.none(),
    inner=st.builds(dict[str, Any], deep=st.text(alphabet="ab é\t", max_size=5) | st.none()) | st.none(),
    plain=st.text(max_size=5),
)


def refusal_code(arguments: JsonObject, **headers: str) -> int:
    named = {f"mcp-param-{name}".encode(): value.encode("latin-1") for name, value in headers.items()}
    with pytest.raises(RpcError) as caught:
        check_repeated(repeated_arguments(SCHEMA), arguments, named)
    return caught.value.code


@given(values)
def test_headers_of_the_official_client_are_accepted(arguments: JsonObject) -> None:
    sent = mcp_param_headers(x_mcp_header_map(SCHEMA), arguments)
    headers = {name.lower().encode(): value.encode("latin-1") for name, value in sent.items()}
    check_repeated(repeated_arguments(SCHEMA), arguments, headers)


def test_missing_different_or_additional_header_is_refused() -> None:
    assert refusal_code({"region": "eu"}) == HEADER_MISMATCH
    assert refusal_code({"region": "eu"}, region="us") == HEADER_MISMATCH
    assert refusal_code({}, region="eu") == HEADER_MISMATCH
    assert refusal_code({"region": None}, region="eu") == HEADER_MISMATCH
    assert refusal_code({"region": ["eu"]}, region="eu") == HEADER_MISMATCH
    assert refusal_code({"region": "eu"}, region="=?base64?%%?=") == HEADER_MISMATCH
    assert refusal_code({"count": 7}, count="7.5") == HEADER_MISMATCH
    assert refusal_code({"dry": True}, dry="True") == HEADER_MISMATCH
    assert refusal_code({"inner": {"deep": "a"}}) == HEADER_MISMATCH


def test_number_may_be_written_in_two_forms() -> None:
    check_repeated(repeated_arguments(SCHEMA), {"count": 42}, {b"mcp-param-count": b"42.0"})


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "number", "x-mcp-header": "A"}}},
        {"properties": {"a": {"type": ["string"], "x-mcp-header": "A"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": "A B"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": 7}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}},
        {"x-mcp-header": "A", "properties": {"b": {"type": "string", "x-mcp-header": "B"}}},
        {"items": {"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}},
        {"anyOf": [{"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}]},
        {"$defs": {"d": {"type": "string", "x-mcp-header": "A"}}},
    ],
)
def test_schema_that_breaks_the_rules_requires_no_headers(schema: JsonObject) -> None:
    assert repeated_arguments(schema) == ()


def test_values_in_a_schema_are_not_read_as_schemas() -> None:
    data: Any = {"type": "string", "x-mcp-header": "A"}
    schema: JsonObject = {"properties": {"a": {"default": data, "enum": [data], "const": data}}}
    assert repeated_arguments(schema) == ()
