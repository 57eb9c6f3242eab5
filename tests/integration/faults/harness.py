"""A user account with a crib, faulty upstream servers, and a healthy server to compare with."""

import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from lab import eventually
from toolcrib.base.home import owner_token, prepare_home
from toolcrib.base.settings import Environment, Settings
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import ToolRef
from toolcrib.web.api_client.api_client import ApiClient
from toolcrib.web.run import Holding, hold

TESTS = Path(__file__).parents[2]


def program(module: str, *words: str, **more: object) -> JsonObject:
    """Return the definition of a test server, as in `mcp.json`."""
    env: JsonObject = {"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1", "API_TOKEN": "hunter2-hunter2"}
    return {"command": sys.executable, "args": ["-S", "-m", f"upstreams.{module}", *words], "env": env, **more}


HEALTHY = program("legacy", "plain")


class Machine:
    """A user account with a home for a crib."""

    def __init__(self, folder: Path) -> None:
        self.user = folder / "user"
        self.user.mkdir(parents=True)
        self.settings = Settings(home=prepare_home(folder / "home").root, port=0)
        self.environment = Environment({"HOME": str(self.user), "PATH": "/usr/bin:/bin"})

    def write(self, **servers: JsonObject) -> None:
        """Write these servers into the home's `mcp.json`."""
        file = self.settings.home / "mcp.json"
        file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")

    @asynccontextmanager
    async def crib(self, **servers: JsonObject) -> AsyncGenerator[tuple[Holding, ApiClient]]:
        """Run a listening crib and yield it with its owner's client; write these servers first, if any."""
        if servers:
            self.write(**servers)
        async with (
            hold(self.settings, kind="serve", environment=self.environment) as holding,
            ApiClient(holding.info.url, owner_token(holding.crib.home), source="api") as client,
        ):
            yield holding, client


async def until_state(client: ApiClient, server: str, *states: str) -> JsonObject:
    """Wait until a server is in one of these states; check again after every event."""
    with anyio.fail_after(30):
        async for _ in client.events(0):
            if (found := await client.server(server))["state"] in states:
                return found
    raise AssertionError(f"The crib ended before {server} was {states}.")


async def until_listed(client: ApiClient, server: str, count: int) -> None:
    """Wait until this many tools of a server are listed."""
    with anyio.fail_after(30):
        async for _ in client.events(0):
            if sum(tool["server"] == server for tool in await client.tools()) == count:
                return


async def call(client: ApiClient, tool: str, **arguments: object) -> JsonObject:
    """Call a tool, given as `server/tool`, and return the result."""
    ref = ToolRef.parse(tool)
    assert ref is not None
    with anyio.fail_after(40):
        return await client.call(ref, arguments)


def text_of(result: JsonObject) -> str:
    """Return the text of a result."""
    return " ".join(part.get("text", "") for part in result["content"])


async def with_healthy_calls(client: ApiClient, work: Callable[[], Awaitable[object]]) -> None:
    """Do the work while another task calls the healthy server; fail if one of those calls fails."""
    await until_listed(client, "healthy", 10)
    calls = 0
    async with anyio.create_task_group() as tasks:

        async def call_healthy() -> None:
            nonlocal calls
            while True:
                result = await call(client, "healthy/echo", text="well")
                assert result["structuredContent"] == {"text": "well"}, result
                calls += 1

        tasks.start_soon(call_healthy)
        await work()
        await eventually(lambda: calls >= 20)
        tasks.cancel_scope.cancel()
