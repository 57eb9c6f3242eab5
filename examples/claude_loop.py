"""Run your own loop with the Claude Agent SDK and tools from a crib, which decides and records every call."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from claude_agent_sdk import AssistantMessage, ClaudeSDKClient, ResultMessage, TextBlock
from injected_tools import server

from toolcrib import Crib, Settings


async def main() -> None:
    """Send one prompt and print the answer."""
    with TemporaryDirectory() as home:
        async with Crib(Settings(home=Path(home))) as crib:
            crib.register(server)
            options = crib.claude_options(source="api", mode="acceptEdits", cwd=Path.cwd())
            async with ClaudeSDKClient(options) as client:
                await client.query("How is the weather in Ulm?")
                async for message in client.receive_response():
                    if isinstance(message, AssistantMessage):
                        for block in message.content:
                            if isinstance(block, TextBlock):
                                print(block.text)
                    elif isinstance(message, ResultMessage):
                        print("ended:", message.subtype)


if __name__ == "__main__":
    asyncio.run(main())
