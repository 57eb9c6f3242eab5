"""Give a Pydantic AI agent the tools of all your MCP servers.

`TestModel` replaces a real model. It calls every tool once.
"""

import asyncio
from pathlib import Path
from typing import Any

from bridged_schema import text_of
from pydantic_ai import Agent, Tool
from pydantic_ai.models.test import TestModel

from toolcrib.bridge import BridgedTool, discover_and_load


def as_pydantic(tool: BridgedTool) -> Tool[None]:
    """Return the tool as a Pydantic AI `Tool`, under its unique bridged name."""

    async def run(**arguments: Any) -> str:
        return text_of(await tool.call(arguments))

    return Tool.from_schema(run, tool.name, tool.description, tool.input_schema)


async def main() -> None:
    """Run an agent that has all tools."""
    tools, _ = await discover_and_load(Path.cwd())
    async with tools:
        agent = Agent(TestModel(), tools=[as_pydantic(tool) for tool in tools])
        print((await agent.run("What time is it?")).output)


if __name__ == "__main__":
    asyncio.run(main())
