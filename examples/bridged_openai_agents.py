"""Give an agent of the OpenAI Agents SDK the tools of all your MCP servers."""

import asyncio
import json
from pathlib import Path
from typing import Any

from agents.tool_context import ToolContext
from bridged_schema import text_of

from agents import Agent, FunctionTool
from toolcrib.bridge import BridgedTool, discover_and_load


def as_function_tool(tool: BridgedTool) -> FunctionTool:
    """Return the tool as a `FunctionTool`, under its unique bridged name."""

    async def invoke(context: ToolContext[Any], arguments: str) -> str:
        return text_of(await tool.call(json.loads(arguments or "{}")))

    # Strict mode would change the servers' schemas.
    return FunctionTool(tool.name, tool.description, tool.input_schema, invoke, strict_json_schema=False)


async def main() -> None:
    """Build an agent with all tools, and call each tool without a model. `await Runner.run(agent, …)` would run it."""
    tools, _ = await discover_and_load(Path.cwd())
    async with tools:
        agent = Agent(name="Assistant", tools=[as_function_tool(tool) for tool in tools])
        for tool in agent.tools:
            assert isinstance(tool, FunctionTool)
            context = ToolContext(None, tool_name=tool.name, tool_call_id="1", tool_arguments="{}")
            print(tool.name, await tool.on_invoke_tool(context, "{}"))


if __name__ == "__main__":
    asyncio.run(main())
