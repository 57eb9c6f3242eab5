"""The tools of all your MCP servers in the OpenAI Agents SDK."""

import asyncio
import json
from pathlib import Path
from typing import Any

from agents.tool_context import ToolContext
from bridged_schema import text_of

from agents import Agent, FunctionTool
from toolcrib.bridge import BridgedTool, discover_and_load


def as_function_tool(tool: BridgedTool) -> FunctionTool:
    """One tool, under the name that is unique among all."""

    async def invoke(context: ToolContext[Any], arguments: str) -> str:
        return text_of(await tool.call(json.loads(arguments or "{}")))

    # Schemas of servers are taken as they are: strict mode would change them.
    return FunctionTool(tool.name, tool.description, tool.input_schema, invoke, strict_json_schema=False)


async def main() -> None:
    """An agent that has all of them; `await Runner.run(agent, …)` asks it. Here one is called without a model."""
    tools, _ = await discover_and_load(Path.cwd())
    async with tools:
        agent = Agent(name="Assistant", tools=[as_function_tool(tool) for tool in tools])
        for tool in agent.tools:
            assert isinstance(tool, FunctionTool)
            context = ToolContext(None, tool_name=tool.name, tool_call_id="1", tool_arguments="{}")
            print(tool.name, await tool.on_invoke_tool(context, "{}"))


if __name__ == "__main__":
    asyncio.run(main())
