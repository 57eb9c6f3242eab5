"""The tools of all your MCP servers for any model's API: a JSON Schema each, and one function that calls by name."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolcrib import CallResult
from toolcrib.bridge import BridgedTool, BridgedTools, discover_and_load


def schemas(tools: Sequence[BridgedTool]) -> list[dict[str, Any]]:
    """What a model is told; the members are called alike, or nearly so, in all APIs."""
    return [{"name": tool.name, "description": tool.description, "input_schema": tool.input_schema} for tool in tools]


def text_of(result: CallResult) -> str:
    """What a model is answered: its texts, or everything as JSON where there is more."""
    texts = [str(part["text"]) for part in result.content if part.get("type") == "text"]
    return "\n".join(texts) if len(texts) == len(result.content) else json.dumps(list(result.content))


async def call(tools: BridgedTools, name: str, arguments: str) -> str:
    """What becomes of a call that the model wants; what goes wrong is for the model to read."""
    tool = tools.named(name)
    if tool is None:
        return f"There is no tool {name}."
    return text_of(await tool.call(json.loads(arguments)))


async def main() -> None:
    """Show the schemas, and call the first tool that takes no arguments."""
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
