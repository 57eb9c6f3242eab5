"""Modern MCP requests to a node, one by one. Not a test itself."""

import json

import httpx2

from cluster.nodes import ClusterNode
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.protocol import CAPABILITIES_KEY, MODERN_VERSION, VERSION_KEY


def call_tool(
    node: ClusterNode,
    name: str,
    arguments: JsonObject,
    *,
    token: str | None = None,
    meta: JsonObject | None = None,
    capabilities: JsonObject | None = None,
    path: str = "/mcp",
    **more: Json,
) -> JsonObject:
    """Call a tool and return its result."""
    envelope = {VERSION_KEY: MODERN_VERSION, CAPABILITIES_KEY: capabilities or {}, **(meta or {})}
    params: JsonObject = {"name": name, "arguments": arguments, "_meta": envelope, **more}
    headers = {"mcp-protocol-version": MODERN_VERSION, "mcp-method": "tools/call", "mcp-name": name}
    headers["accept"] = "application/json, text/event-stream"
    body: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return message(node.request("POST", path, body, token=token, headers=headers))


def message(response: httpx2.Response) -> JsonObject:
    """Return the result in a response, which is JSON or the end of a stream."""
    text = response.text
    if response.headers["content-type"].startswith("text/event-stream"):
        text = [line.removeprefix("data:") for line in text.splitlines() if line.startswith("data:")][-1]
    body = json.loads(text)
    assert "result" in body, text
    return body["result"]
