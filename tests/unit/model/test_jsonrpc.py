"""Messages of the protocol: valid forms, and agreement with the HTTP headers."""

import json
import os
import time
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.model.json import JsonObject
from toolcrib.model.jsonrpc import Message, RpcError, check_modern, era_of, read_message
from toolcrib.model.protocol import (
    CAPABILITIES_KEY,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    MODERN_VERSION,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    VERSION_KEY,
    encode_header,
)

META: JsonObject = {VERSION_KEY: MODERN_VERSION, CAPABILITIES_KEY: {}}
HEADERS = {b"mcp-protocol-version": MODERN_VERSION.encode(), b"mcp-method": b"tools/call", b"mcp-name": b"a_tool"}


def make_call(**params: object) -> Message:
    sent: JsonObject = {"name": "a_tool", "_meta": META, **params}
    return read_message(orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": sent}))


def error_code(body: bytes | str) -> int:
    with pytest.raises(RpcError) as caught:
        read_message(body.encode() if isinstance(body, str) else body)
    return caught.value.code


def header_error_code(message: Message, **headers: bytes | None) -> int:
    named = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    with pytest.raises(RpcError) as caught:
        check_modern(message, {name: value for name, value in (HEADERS | named).items() if value is not None})
    return caught.value.code


def test_request_is_read_with_its_id_method_and_progress_token() -> None:
    body = {"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": {"name": "a", "_meta": {"progressToken": 7}}}
    message = read_message(json.dumps(body).encode())
    assert (message.id, message.method, message.progress_token) == ("x", "tools/call", 7)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff\xfe", b'{"a":NaN}', b"\xef\xbb\xbf{}", b'{"a":1,"a":2}', b"[" * 300]
)
def test_invalid_json_is_a_parse_error(body: bytes) -> None:
    assert error_code(body) == PARSE_ERROR


@pytest.mark.parametrize(
    "body",
    [
        "[]",
        "null",
        '[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
        '{"jsonrpc":"1.0","id":1,"method":"ping"}',
        '{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
        '{"jsonrpc":"2.0","id":true,"method":"ping"}',
        '{"jsonrpc":"2.0","id":null,"method":"ping"}',
        '{"jsonrpc":"2.0","id":1,"method":7}',
        '{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}',
        '{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}',
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","Name":"b"}}',
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name\\u0000":"b"}}',
        '{"jsonrpc":"2.0","id":1,"result":{},"error":{}}',
        '{"jsonrpc":"2.0","id":1}',
    ],
)
def test_anything_but_one_valid_message_is_an_invalid_request(body: str) -> None:
    assert error_code(body) == INVALID_REQUEST


def test_key_with_many_combining_marks_takes_little_time() -> None:
    key = "a" + "\u0315\u0300" * 30_000
    started = time.thread_time()
    read_message(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {key: 1}}).encode())
    assert time.thread_time() - started < 1


@pytest.mark.skipif("TOOLCRIB_CORPUS" not in os.environ, reason="TOOLCRIB_CORPUS names no corpus")
def test_ambiguous_lines_of_the_corpus_never_call_the_denied_tool() -> None:
    vectors = Path(os.environ["TOOLCRIB_CORPUS"], "own-vectors", "jsonrpc-ambiguity.jsonl")
    for line in vectors.read_text(encoding="utf-8").splitlines():
        raw: str = json.loads(line)["raw"]
        try:
            message = read_message(raw.encode("utf-8", "surrogatepass"))
        except RpcError:
            continue
        assert message.params.get("name") != "denied", raw


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        read_message(body)
    except RpcError as error:
        assert error.body(None)


def test_modern_call_with_matching_headers_is_accepted() -> None:
    check_modern(make_call(), HEADERS)


def test_white_space_around_a_header_is_ignored() -> None:
    check_modern(make_call(), HEADERS | {b"mcp-name": b"  a_tool\t "})


def test_headers_that_contradict_the_body_are_refused() -> None:
    assert header_error_code(make_call(), mcp_method=b"tools/list") == HEADER_MISMATCH
    assert header_error_code(make_call(), mcp_method=None) == HEADER_MISMATCH
    assert header_error_code(make_call(), mcp_name=b"another") == HEADER_MISMATCH
    assert header_error_code(make_call(), mcp_name=b"=?base64?!!?=") == HEADER_MISMATCH
    assert header_error_code(make_call(), mcp_protocol_version=b"2099-01-01") == HEADER_MISMATCH


def test_call_without_version_or_capabilities_is_refused() -> None:
    assert header_error_code(make_call(_meta={})) == INVALID_PARAMS
    assert header_error_code(make_call(_meta={VERSION_KEY: MODERN_VERSION})) == INVALID_PARAMS
    assert header_error_code(make_call(_meta={VERSION_KEY: MODERN_VERSION, CAPABILITIES_KEY: 1})) == INVALID_PARAMS


def test_unsupported_version_is_refused_with_the_supported_ones() -> None:
    future: JsonObject = {VERSION_KEY: "2099-01-01", CAPABILITIES_KEY: {}}
    with pytest.raises(RpcError) as caught:
        check_modern(make_call(_meta=future), HEADERS | {b"mcp-protocol-version": b"2099-01-01"})
    assert (caught.value.code, caught.value.data["supported"]) == (UNSUPPORTED_VERSION, [MODERN_VERSION])


@given(st.text(min_size=1, max_size=30).filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text)))
def test_any_name_survives_encoding_in_a_header(name: str) -> None:
    check_modern(make_call(name=name), HEADERS | {b"mcp-name": encode_header(name).encode("latin-1")})


def test_handshake_versions_and_no_version_are_legacy_and_others_modern() -> None:
    assert [era_of(version) for version in (None, "2025-11-25", "2026-07-28", "nonsense")] == [
        "legacy",
        "legacy",
        "modern",
        "modern",
    ]
