"""The endpoints of MCP: all tools, search, or one server under its own names."""

import json
from typing import Any

import pytest
from mcp import MCPError
from mcp.types import TextContent

from integration.web.mcp.library import Library
from integration.web.mcp.test_bad_input import HEADERS, META
from lab import Lab, ModeName
from toolcrib.model.json import JsonObject

pytestmark = pytest.mark.anyio

ERAS: list[ModeName] = ["legacy", "2026-07-28"]
both_eras = pytest.mark.parametrize("era", ERAS)
ONE = "/mcp/servers/library"
SEARCH = "/mcp?tools=search"


async def modern(
    lab: Lab, path: str, method: str, named: str = "", extra: dict[str, str] | None = None, **params: Any
) -> JsonObject:
    """Send a modern request; return the status and the answer."""
    headers = HEADERS | {"mcp-method": method, "mcp-name": named} | (extra or {})
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META, **params}}
    async with lab.http() as http:
        answer = await http.post(path, json=body, headers=headers)
    return {"status": answer.status_code, **answer.json()}


@both_eras
async def test_server_endpoint_lists_only_that_server_under_its_own_names(lab: Lab, era: ModeName) -> None:
    async with lab.client("http", era, path=ONE) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"look", "find"} <= names
        assert not any("echo" in name or "ping" in name for name in names)
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["greet"]
        assert (await client.get_prompt("greet", {"who": "Ada"})).messages
        assert not (await client.call_tool("look", {})).is_error
        for name in ("library_look", "lab_echo", "nothing"):
            with pytest.raises(MCPError, match=f"^Unknown tool: {name}$"):
                await client.call_tool(name, {})


@pytest.mark.parametrize("name", ["nothing", "Library", "lib"])
async def test_unknown_server_endpoint_is_404(lab: Lab, name: str) -> None:
    answer = await modern(lab, f"/mcp/servers/{name}", "tools/list")
    assert (answer["status"], answer["code"]) == (404, "server.unknown")


@both_eras
async def test_server_endpoint_passes_errors_through(lab: Lab, era: ModeName) -> None:
    async with lab.client("http", era, path=ONE) as client:
        for code in (-32042, -32000):
            with pytest.raises(MCPError) as caught:
                await client.call_tool("fail", {"code": code})
            assert (caught.value.error.code, caught.value.error.data) == (code, {"elicitations": []})


@both_eras
async def test_combined_endpoint_passes_only_actionable_errors_through(lab: Lab, era: ModeName) -> None:
    async with lab.client("http", era) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("library_fail", {})
        assert caught.value.error.code == -32042
        result = await client.call_tool("library_fail", {"code": -32000})
        assert (result.is_error, "MCP error: Sign in first" in str(result.content)) == (True, True)


@both_eras
async def test_search_endpoint_lists_only_the_search_tools(lab: Lab, era: ModeName) -> None:
    async with lab.client("http", era, path=SEARCH) as client:
        assert client.instructions is not None if era == "legacy" else True
        assert {tool.name for tool in (await client.list_tools()).tools} == {"find_tools", "call_tool"}
        assert (await client.list_prompts()).prompts


@both_eras
async def test_tool_is_found_and_called_by_its_reference(lab: Lab, era: ModeName) -> None:
    async with lab.client("http", era, path=SEARCH) as client:
        found = await client.call_tool("find_tools", {"query": "say again", "limit": 3})
        assert found.structured_content is not None
        (block,) = found.content
        assert isinstance(block, TextContent)
        assert json.loads(block.text) == found.structured_content
        match = found.structured_content["tools"][0]
        assert (match["ref"], match["signature"]) == ("lab/echo", "(text: str, times: int = 1)")
        assert match.keys() == {"ref", "purpose", "signature", "score"}
        named = await client.call_tool("find_tools", {"query": "lab/echo", "limit": 1})
        assert named.structured_content is not None
        (whole,) = named.structured_content["tools"]
        assert (whole["score"], whole["inputSchema"]["required"]) == (1.0, ["text"])
        called = await client.call_tool("call_tool", {"ref": match["ref"], "arguments": {"text": "found"}})
        assert called.structured_content == {"said": "found"}


@both_eras
async def test_hidden_and_unknown_tools_give_the_same_error(lab: Lab, era: ModeName) -> None:
    async with lab.client("http", era, path=SEARCH) as client:
        found = await client.call_tool("find_tools", {"query": "secret"})
        assert found.structured_content is not None
        assert "lab/secret" not in {tool["ref"] for tool in found.structured_content["tools"]}
        for ref in ("lab/secret", "lab/nothing", "nothing"):
            with pytest.raises(MCPError, match=f"^Unknown tool: {ref}$"):
                await client.call_tool("call_tool", {"ref": ref})
        with pytest.raises(MCPError, match=r"^Unknown tool: lab_echo$"):
            await client.call_tool("lab_echo", {"text": "a"})


@both_eras
async def test_search_without_a_match_hints_at_servers_and_wording(lab: Lab, era: ModeName) -> None:
    async with lab.client("http", era, path=SEARCH) as client:
        found = await client.call_tool("find_tools", {"query": "xyzzy plugh"})
        assert found.structured_content is not None
        assert found.structured_content["tools"] == []
        assert "lab" in found.structured_content["hint"].partition("Servers: ")[2]


@pytest.mark.parametrize(
    "arguments", [{}, {"query": ""}, {"query": 7}, {"query": "a", "limit": 0}, {"query": "a", "limit": True}]
)
async def test_invalid_search_is_an_error_result(lab: Lab, arguments: JsonObject) -> None:
    async with lab.client("http", "2026-07-28", path=SEARCH) as client:
        assert (await client.call_tool("find_tools", arguments)).is_error


async def test_call_through_search_is_audited_as_the_tool(lab: Lab) -> None:
    async with lab.client("http", "2026-07-28", path=SEARCH) as client:
        await client.call_tool("call_tool", {"ref": "lab/echo", "arguments": {"text": "a"}})
    async with lab.http() as http:
        records = (await http.get("/api/audit")).json()
    assert {(record["server"], record["tool"]) for record in records} == {("lab", "echo")}


async def test_capabilities_match_the_endpoint(lab: Lab) -> None:
    everything = (await modern(lab, "/mcp", "server/discover"))["result"]["capabilities"]
    assert everything.keys() == {"tools", "prompts", "resources", "completions", "extensions", "logging"}
    assert everything["resources"] == {"subscribe": True, "listChanged": True}
    assert (await modern(lab, SEARCH, "server/discover"))["result"]["capabilities"]["tools"] == {}
    discovered = (await modern(lab, ONE, "server/discover"))["result"]
    assert discovered["_meta"]["io.modelcontextprotocol/serverInfo"]["title"] == "library"
    assert (discovered["ttlMs"], discovered["cacheScope"]) == (0, "private")


@pytest.mark.parametrize(("query", "status"), [("cwd=here", 400), ("cwd=", 400), ("tools=all", 400), ("cwd=/", 200)])
async def test_invalid_query_of_an_endpoint_is_refused(lab: Lab, query: str, status: int) -> None:
    assert (await modern(lab, f"/mcp?{query}", "tools/list"))["status"] == status


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"mcp-param-shelf": "a b", "mcp-param-row": "7"}, None),
        ({"Mcp-Param-Shelf": "=?base64?YSBi?=", "Mcp-Param-Row": "7.0"}, None),
        ({"mcp-param-shelf": "a b"}, -32020),
        ({"mcp-param-shelf": "a b", "mcp-param-row": "8"}, -32020),
        ({"mcp-param-shelf": "=?base64?!?=", "mcp-param-row": "7"}, -32020),
        ({}, -32020),
    ],
)
async def test_arguments_marked_for_headers_must_be_repeated_there(
    lab: Lab, headers: dict[str, str], code: int | None
) -> None:
    arguments = {"shelf": "a b", "row": 7}
    for path, name in (("/mcp", "library_find"), (ONE, "find")):
        answer = await modern(lab, path, "tools/call", name, headers, name=name, arguments=arguments)
        assert answer.get("error", {}).get("code") == code
        assert answer["status"] == (400 if code else 200)


async def test_stdio_needs_no_arguments_in_headers(lab: Lab, library: Library) -> None:
    async with lab.client("stdio", "2026-07-28") as client:
        result = await client.call_tool("library_find", {"shelf": "a b", "row": 7})
    assert "found" in str(result.content)


@pytest.mark.parametrize(("method", "key"), [("resources/read", "uri"), ("prompts/get", "name")])
async def test_name_in_the_header_must_match_the_body(lab: Lab, method: str, key: str) -> None:
    params: dict[str, Any] = {key: "library://room"}
    answer = await modern(lab, "/mcp", method, "other", **params)
    assert (answer["status"], answer["error"]["code"]) == (400, -32020)
