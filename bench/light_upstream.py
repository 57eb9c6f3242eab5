"""A stdio upstream that uses almost no CPU, so that a measurement shows the proxy: `bench.light_upstream [TOOLS]`.

It uses only the standard library and speaks both eras. It has `echo` and as many more tools as requested, listed in
pages of 500.
"""

import json
import os
import sys

from bench.tool_schemas import DESCRIPTION, ECHO_SCHEMA, Shape, many_schema

PAGE = 500
KEPT: Shape = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
INFO: Shape = {"name": "bench", "version": "1"}


def list_tools(count: int) -> list[Shape]:
    """Return all tools, as a client sees them."""
    schema = many_schema()
    names = (f"tool_{number:04}" for number in range(count - 1))
    many: list[Shape] = [{"name": name, "description": DESCRIPTION, "inputSchema": schema} for name in names]
    return [{"name": "echo", "description": "Echo the text.", "inputSchema": ECHO_SCHEMA}, *many]


def result_of(method: str, params: Shape, tools: list[Shape]) -> Shape | None:
    """Return the answer to a request, or None for an unknown method."""
    match method, params:
        case "tools/call", {"arguments": {"text": str(text)}}:
            return {"content": [{"type": "text", "text": text}], "isError": False, "resultType": "complete"}
        case "tools/list", _:
            start = int(str(params.get("cursor") or 0))
            end = start + PAGE
            more: Shape = {"nextCursor": str(end)} if end < len(tools) else {}
            return {**KEPT, **more, "tools": tools[start:end]}
        case "server/discover", _:
            known: Shape = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
            return {**KEPT, **known, "_meta": {"io.modelcontextprotocol/serverInfo": INFO}}
        case "initialize", {"protocolVersion": version}:
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": INFO}
        case "ping", _:
            return {}
        case _:
            return None


def main() -> None:
    """Answer line by line."""
    tools = list_tools(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "id" not in request or "method" not in request:
            continue
        result = result_of(request["method"], request.get("params") or {}, tools)
        answer: Shape = {"jsonrpc": "2.0", "id": request["id"]}
        if result is None:
            answer["error"] = {"code": -32601, "message": "Method not found"}
        else:
            answer["result"] = result
        data = memoryview(json.dumps(answer).encode() + b"\n")
        while data:
            data = data[os.write(1, data) :]


if __name__ == "__main__":
    main()
