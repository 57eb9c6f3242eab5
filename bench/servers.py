"""The servers that the crib is compared with, each its own process: `python -m bench.servers sdk|floor [TOOLS]`.

`sdk` is the MCP SDK's own HTTP server with its fastest settings: stateless, JSON answers, httptools and uvloop, schema
look-up set. `floor` answers from a bare ASGI function: the cost of HTTP and JSON alone. Both print one ready line, as
`serve --json` does.

"""

import json
import socket
import sys
from typing import Any

import mcp_types as wire
import orjson
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from starlette.types import ASGIApp, Receive, Scope, Send

from bench.tool_schemas import DESCRIPTION, ECHO_SCHEMA, many_schema


def sdk_app(count: int) -> ASGIApp:
    """Serve an echo and more tools on the SDK's low-level server."""
    tools = {"echo": wire.Tool(name="echo", description="Echo the text.", input_schema=ECHO_SCHEMA)}
    for index in range(count):
        name = f"tool_{index:04}"
        tools[name] = wire.Tool(name=name, description=DESCRIPTION, input_schema=many_schema())

    async def list_tools(
        context: ServerRequestContext[Any], params: wire.PaginatedRequestParams | None
    ) -> wire.ListToolsResult:
        return wire.ListToolsResult(tools=list(tools.values()), ttl_ms=0, cache_scope="private")

    async def call_tool(context: ServerRequestContext[Any], params: wire.CallToolRequestParams) -> wire.CallToolResult:
        text = (params.arguments or {})["text"]
        return wire.CallToolResult(content=[wire.TextContent(type="text", text=text)])

    def schema_of(name: str) -> dict[str, Any] | None:
        tool = tools.get(name)
        return tool.input_schema if tool else None

    server = Server(
        "bench", version="1", on_list_tools=list_tools, on_call_tool=call_tool, get_tool_input_schema=schema_of
    )
    return server.streamable_http_app(json_response=True, stateless_http=True)


def _echoed(body: bytes) -> bytes:
    request = orjson.loads(body)
    content = [{"type": "text", "text": request["params"]["arguments"]["text"]}]
    result = {"content": content, "isError": False, "resultType": "complete"}
    return orjson.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result})


async def floor_app(scope: Scope, receive: Receive, send: Send) -> None:
    """Read a JSON-RPC call and answer its text. Also accepts OTLP exports."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    answer = b"" if scope["path"].startswith("/v1/") else _echoed(body)  # an OTLP export needs no answer
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def main() -> None:
    """Listen, print the ready line, and serve."""
    kind = sys.argv[1]
    app = sdk_app(int(sys.argv[2]) if len(sys.argv) > 2 else 0) if kind == "sdk" else floor_app
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    print(json.dumps({"event": "ready", "mcp": f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"}), flush=True)
    lifespan = "on" if kind == "sdk" else "off"
    config = uvicorn.Config(
        app, loop="uvloop", http="httptools", access_log=False, log_level="error", lifespan=lifespan
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
