"""MCP Apps of several servers through `/mcp`: their pages, and the tools that pages call."""

import json
import sys
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from lab import Lab, ModeName, make_lab
from toolcrib.model.json import JsonObject
from toolcrib.web.run import hold

pytestmark = pytest.mark.anyio

TESTS = Path(__file__).parents[3]


def app(name: str, own_tool: str) -> JsonObject:
    ui: JsonObject = {"ui": {"resourceUri": "ui://panel"}}
    tools = [{"name": tool, "inputSchema": {"type": "object"}, "_meta": ui} for tool in ("show", own_tool)]
    return {"tools": tools, "serverInfo": {"name": name, "version": "1"}}


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncGenerator[Lab]:
    stopped = make_lab(tmp_path)
    servers: JsonObject = {}
    for name, own_tool in (("maps", "zoom"), ("weather", "refresh")):
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(app(name, own_tool)), encoding="utf-8")
        arguments = ["-S", "-m", "upstreams.json_file", str(file)]
        servers[name] = {"command": sys.executable, "args": arguments, "env": {"PYTHONPATH": str(TESTS)}}
    (stopped.home / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    async with hold(stopped.settings, kind="serve") as holding:
        lab = replace(stopped, url=holding.info.url)
        async with lab.http() as http:
            for name in servers:
                assert (await http.post(f"/api/servers/{name}/test")).json()["state"] == "connected"
        yield lab


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_each_tool_links_the_page_of_its_own_server(lab: Lab, era: ModeName) -> None:
    async with lab.client("http", era) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        uris = {name: (tools[f"{name}_show"].meta or {})["ui"]["resourceUri"] for name in ("maps", "weather")}
        assert uris == {"maps": "ui://panel", "weather": "ui://weather/panel"}
        for uri in uris.values():
            (content,) = (await client.read_resource(uri)).contents
            assert str(content.uri) == uri
    async with lab.http() as http:
        reads = [one for one in (await http.get("/api/audit")).json() if one["tool"] == "resources/read"]
    assert {(one["server"], one["arguments"]["uri"]) for one in reads} == {
        ("maps", "ui://panel"),
        ("weather", "ui://panel"),
    }


async def test_page_calls_a_tool_by_its_name_on_the_server(lab: Lab) -> None:
    async with lab.client("http", "2026-07-28") as client:
        result = await client.call_tool("refresh", {})
        assert getattr(result.content[0], "text", None) == "called refresh"
        with pytest.raises(Exception, match="Unknown tool: show"):  # both servers have this tool
            await client.call_tool("show", {})
