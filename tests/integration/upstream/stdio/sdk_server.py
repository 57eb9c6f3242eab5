"""The SDK's own server over stdio, in both eras."""

import sys
from typing import Any

import anyio
import mcp.types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

BUS = InMemorySubscriptionBus()
TOOLS = ("echo", "count", "wait", "ask", "change")


async def list_tools(
    ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    """Return all tools."""
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    tools = [types.Tool(name=name, description=name, input_schema=schema) for name in TOOLS]
    return types.ListToolsResult(tools=tools, ttl_ms=0, cache_scope="private")


async def call_tool(ctx: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
    """Run a tool."""
    text = str((params.arguments or {}).get("text"))
    match params.name:
        case "count":
            for number in range(1, 4):
                await ctx.session.report_progress(number, 3, f"at {number}")
        case "wait":
            try:
                await anyio.sleep_forever()
            finally:
                sys.stderr.write("cancelled\n")
                sys.stderr.flush()
        case "ask":
            schema = {"type": "object", "properties": {"why": {"type": "string"}}}
            answer = await ctx.session.elicit_form("Why?", schema, related_request_id=ctx.request_id)
            text = str(answer.content)
        case "change":
            await BUS.publish(ToolsListChanged())
            await ctx.session.send_tool_list_changed()
        case _:
            pass
    return types.CallToolResult(content=[types.TextContent(text=text)])


async def main() -> None:
    """Serve on standard input and output."""
    server: Server[Any] = Server(
        "sdk", version="1", on_list_tools=list_tools, on_call_tool=call_tool, on_subscriptions_listen=ListenHandler(BUS)
    )
    async with stdio_server() as (reading, writing):
        await server.run(
            reading, writing, server.create_initialization_options(NotificationOptions(tools_changed=True))
        )


if __name__ == "__main__":
    anyio.run(main)
