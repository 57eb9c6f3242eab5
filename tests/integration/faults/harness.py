"""A person with a home and a crib on it, upstream servers that misbehave, and a healthy one beside them."""

import json
import statistics
import sys
import time
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
    """One of the small servers, as it stands in a file."""
    env: JsonObject = {"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1", "API_TOKEN": "hunter2-hunter2"}
    return {"command": sys.executable, "args": ["-S", "-m", f"upstreams.{module}", *words], "env": env, **more}


HEALTHY = program("crafts", "plain")


class Bench:
    """A person with a home."""

    def __init__(self, folder: Path) -> None:
        self.user = folder / "user"
        self.user.mkdir(parents=True)
        self.settings = Settings(home=prepare_home(folder / "home").root, port=0)
        self.environment = Environment({"HOME": str(self.user), "PATH": "/usr/bin:/bin"})

    def write(self, **servers: JsonObject) -> None:
        """Have these servers in our own file."""
        file = self.settings.home / "mcp.json"
        file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")

    @asynccontextmanager
    async def crib(self, **servers: JsonObject) -> AsyncGenerator[tuple[Holding, ApiClient]]:
        """A crib that listens, and its owner; with these servers, if some are given."""
        if servers:
            self.write(**servers)
        async with (
            hold(self.settings, kind="serve", environment=self.environment) as holding,
            ApiClient(holding.info.url, owner_token(holding.crib.home), source="api") as client,
        ):
            yield holding, client


async def until_state(client: ApiClient, server: str, *states: str) -> JsonObject:
    """Wait until a server stands like this: look, then look again at every event."""
    with anyio.fail_after(30):
        async for _ in client.events(0):
            if (found := await client.server(server))["state"] in states:
                return found
    raise AssertionError(f"The crib ended before {server} was {states}.")


async def until_listed(client: ApiClient, server: str, count: int) -> None:
    """Wait until all tools of a server are in the list of all tools."""
    with anyio.fail_after(30):
        async for _ in client.events(0):
            if sum(tool["server"] == server for tool in await client.tools()) == count:
                return


async def call(client: ApiClient, tool: str, **arguments: object) -> JsonObject:
    """Call a tool, `server/tool`, and give the answer."""
    ref = ToolRef.parse(tool)
    assert ref is not None
    with anyio.fail_after(40):
        return await client.call(ref, arguments)


def text_of(answer: JsonObject) -> str:
    """The text of an answer."""
    return " ".join(part.get("text", "") for part in answer["content"])


async def beside(client: ApiClient, trouble: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Call the healthy server while the trouble goes on; the medians in ms before and during it.

    Every call has to succeed. How long they take is told, not judged: that is for `make bench`.
    """
    await until_listed(client, "healthy", 10)
    before = [await _timed(client) for _ in range(20)]
    during: list[float] = []
    async with anyio.create_task_group() as tasks:

        async def healthy() -> None:
            while True:
                during.append(await _timed(client))

        tasks.start_soon(healthy)
        await trouble()
        await eventually(lambda: len(during) >= 20)
        tasks.cancel_scope.cancel()
    return statistics.median(before), statistics.median(during)


async def _timed(client: ApiClient) -> float:
    started = time.perf_counter()
    answer = await call(client, "healthy/echo", text="well")
    assert answer["structuredContent"] == {"text": "well"}, answer
    return (time.perf_counter() - started) * 1000
