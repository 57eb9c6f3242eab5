"""Offer the tools of all your MCP servers to any model's API.

Each tool becomes a JSON Schema, and one function runs the calls that the model requests.

"""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolcrib import CallResult
from toolcrib.bridge import BridgedTool, BridgedTools, discover_and_load


def schemas(tools: Sequence[BridgedTool]) -> list[dict[str, Any]]:
    """Return the tool definitions for the model. Most APIs use these member names, or similar ones."""
    return [{"name": tool.name, "description": tool.description, "input_schema": tool.input_schema} for tool in tools]


def text_of(result: CallResult) -> str:
    """Return the text for the model: the texts of the result, or all its content as JSON if some of it is not text."""
    texts = [str(part["text"]) for part in result.content if part.get("type") == "text"]
    return "\n".join(texts) if len(texts) == len(result.content) else json.dumps(list(result.content))


async def call(tools: BridgedTools, name: str, arguments: str) -> str:
    """Run a call requested by the model. Errors are returned as text for the model."""
    tool = tools.named(name)
    if tool is None:
        return f"There is no tool {name}."
    return text_of(await tool.call(json.loads(arguments)))


async def main() -> None:
    """Print the schemas, and call the first tool that requires no arguments."""
    tools, errors = await discover_and_load(Path.cwd())
    async with tools:
        for server, reason in errors.items():
            print(f"{server}: {reason}")
        for schema in schemas(tools):
            print(json.dumps(schema))
        free = next((tool for tool in tools if not tool.input_schema.get("required")), None)
        if free is not None:
            print(await call(tools, free.name, "{}"))


if __name__ == "__main__":
    asyncio.run(main())
