"""Invalid requests to `/mcp` get protocol errors and do not affect later calls."""

import json
from typing import Any

import anyio
import httpx2
import pytest

from lab import Lab
from toolcrib.model.json import JsonObject

pytestmark = pytest.mark.anyio

META: JsonObject = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
HEADERS = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "lab_echo",
}


def call(name: str = "lab_echo", arguments: object = None, **members: object) -> bytes:
    params: JsonObject = {"name": name, "arguments": {"text": "a"} if arguments is None else arguments, "_meta": META}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params, **members}).encode()


async def post(lab: Lab, body: bytes, **headers: str | None) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with lab.http() as http:
        merged = {name: value for name, value in (HEADERS | named).items() if value is not None}
        return await http.post("/mcp", content=body, headers=merged)


async def check_call_works(lab: Lab) -> None:
    answer = await post(lab, call())
    assert answer.json()["result"]["structuredContent"] == {"said": "a"}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\xff"}}', -32700),
        (call().replace(b'"a"', b"NaN"), -32700),
        (call().replace(b'"id": 1', b'"id": 1, "id": 2'), -32700),
        (call(arguments={"text": "a", "times": 10**400}), -32700),
        (call(arguments={"text": "deep"}).replace(b'"deep"', b"[" * 250 + b"]" * 250), -32700),
        (b"[" + call() + b"]", -32600),
        (call(id=None), -32600),
        (call(id=1.5), -32600),
        (call(params=[]), -32600),
        (call(Method="tools/list"), -32600),
        (call(params={"name": "lab_echo"}), -32602),
        (call(arguments=[1]), -32602),
        (call(arguments="text"), -32602),
    ],
)
async def test_malformed_message_gets_a_protocol_error(lab: Lab, body: bytes, code: int) -> None:
    answer = await post(lab, body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
    await check_call_works(lab)


@pytest.mark.parametrize(
    ("path", "code"),
    [("/mcp/agents/missing", "agent.unknown"), ("/mcp/servers/nothing", "server.unknown")]
    + [(f"/mcp/{path}", "route.unknown") for path in ("servers/", "servers/lab/x", "agents/", "agents/x/y", "/", "x")],
)
async def test_unknown_path_below_mcp_is_404(lab: Lab, path: str, code: str) -> None:
    async with lab.http() as http:
        for method in ("POST", "GET", "DELETE"):
            answer = await http.request(method, path, content=call(), headers=HEADERS)
            assert (answer.status_code, answer.json()["code"]) == (404, code)


@pytest.mark.parametrize(
    "headers",
    [{"mcp_method": "tools/list"}, {"mcp_method": None}, {"mcp_name": "lab_fail"}, {"mcp_name": None}],
)
async def test_headers_that_contradict_the_body_are_refused(lab: Lab, headers: dict[str, str | None]) -> None:
    answer = await post(lab, call(), **headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32020)


async def test_duplicate_routing_header_is_refused(lab: Lab) -> None:
    async with lab.http() as http:
        doubled = [*HEADERS.items(), ("mcp-name", "lab_fail")]
        answer = await http.post("/mcp", content=call(), headers=doubled)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32020)


async def test_unsupported_version_error_lists_supported_versions(lab: Lab) -> None:
    meta = {**META, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    body = call(params={"name": "lab_echo", "arguments": {}, "_meta": meta})
    answer = await post(lab, body, mcp_protocol_version="2099-01-01")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32022)
    assert answer.json()["error"]["data"]["supported"] == ["2026-07-28"]


async def test_unknown_method_is_not_found(lab: Lab) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/burn", "params": {"_meta": META}}).encode()
    answer = await post(lab, body, mcp_method="tools/burn", mcp_name=None)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, -32601)


async def test_oversized_arguments_are_refused(lab: Lab) -> None:
    answer = await post(lab, call(arguments={"text": "x" * 10_000_000}))
    assert (answer.status_code, answer.json()["code"]) == (413, "request.too_large")
    await check_call_works(lab)


async def test_body_without_the_json_media_type_is_refused(lab: Lab) -> None:
    answer = await post(lab, call(), content_type="text/plain")
    assert (answer.status_code, answer.json()["code"]) == (415, "request.media_type")


@pytest.mark.parametrize("cursor", ["nonsense", "", 7, "ZnJvbQ=="])
async def test_unknown_cursor_is_refused(lab: Lab, cursor: object) -> None:
    params: dict[str, Any] = {"cursor": cursor, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}).encode()
    answer = await post(lab, body, mcp_method="tools/list", mcp_name=None)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32602)


async def test_legacy_call_without_a_session_is_refused(lab: Lab) -> None:
    answer = await post(lab, call(), mcp_protocol_version="2025-11-25")
    assert answer.status_code == 400


async def test_unknown_legacy_session_is_not_found(lab: Lab) -> None:
    answer = await post(lab, call(), mcp_protocol_version="2025-11-25", mcp_session_id="f" * 32)
    assert answer.status_code == 404


@pytest.mark.parametrize("authorization", ["", "Bearer wrong", "Bearer", "Basic b3duZXI6"])
async def test_invalid_token_is_refused(lab: Lab, authorization: str) -> None:
    answer = await post(lab, call(), authorization=authorization)
    assert (answer.status_code, answer.headers["www-authenticate"][:6]) == (401, "Bearer")


async def test_foreign_origin_or_host_is_refused_with_a_valid_token(lab: Lab) -> None:
    assert (await post(lab, call(), origin="http://evil.example")).status_code == 403
    assert (await post(lab, call(), host="evil.example")).status_code == 403


async def test_call_with_an_incomplete_body_is_not_made(lab: Lab) -> None:
    body = call(arguments={"text": "never"})
    assert lab.url is not None
    host = lab.url.removeprefix("http://")
    head = {**HEADERS, "host": host, "authorization": f"Bearer {lab.token}", "content-length": str(len(body) + 10)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    async with await anyio.connect_tcp("127.0.0.1", int(host.rpartition(":")[2])) as wire:
        await wire.send(f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body)
    await check_call_works(lab)
    async with lab.http() as http:
        records = (await http.get("/api/audit")).json()
    assert "never" not in str(records)
    assert len(records) == 2
