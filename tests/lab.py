"""A crib for tests: a home with a tools module that has one tool for each possible outcome of a call."""

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from deadlines import stretched
from http_clients import PLAIN
from toolcrib.base.home import owner_token, prepare_home
from toolcrib.base.settings import Settings

ModeName = Literal["legacy", "2026-07-28", "auto"]
Door = Literal["http", "stdio"]

LAB_TOOLS = '''
"""Tools for the laboratory."""

import os
from pathlib import Path
from typing import Annotated

import anyio

from toolcrib import Context, Inject, tool


@tool(read_only=True)
async def echo(text: str, times: Annotated[int, "How often."] = 1) -> dict:
    """Say something again."""
    return {"said": text * times}


@tool
async def count_to(end: int, *, context: Annotated[Context, Inject]) -> str:
    """Count, and report each number."""
    for number in range(1, end + 1):
        await context.progress(number, end, f"at {number}")
    return f"counted to {end}"


@tool
async def wait_for_ever(note: str) -> str:
    """Write `started` into the note, then hang; write `cancelled` when taken back."""
    path = anyio.Path(note)
    await path.write_text("started")
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await path.write_text("cancelled")


@tool
def shout(text: str) -> str:
    """Print something, which must not reach the protocol."""
    print("noise on standard output", text, flush=True)
    os.write(1, b"more noise\\n")
    return text.upper()


@tool
async def fail(message: str) -> str:
    """Raise."""
    raise ValueError(message)


@tool(timeout=0.05)
async def hang() -> str:
    """Never answer; its time-out ends it."""
    await anyio.sleep_forever()


@tool(privileged=True)
async def secret() -> str:
    """Only for those who were given it."""
    return "opened"
'''

ADDED_TOOLS = '''
"""A module that comes later."""

from toolcrib import tool


@tool
async def hello() -> str:
    """Greet."""
    return "hello"
'''


@dataclass(frozen=True)
class Lab:
    """A home with tools, and clients for the crib on it."""

    settings: Settings
    url: str | None = None

    @property
    def home(self) -> Path:
        """The crib's home."""
        return self.settings.home

    @property
    def token(self) -> str:
        """The owner's token."""
        return owner_token(prepare_home(self.home))

    def add_module(self, name: str, text: str = ADDED_TOOLS) -> None:
        """Add a module to the tools folder."""
        (self.home / "tools" / f"{name}.py").write_text(text, encoding="utf-8")

    @asynccontextmanager
    async def http(self) -> AsyncGenerator[httpx2.AsyncClient]:
        """Return a plain HTTP client with the owner's token."""
        assert self.url is not None
        headers = {"authorization": f"Bearer {self.token}"}
        async with httpx2.AsyncClient(
            base_url=self.url, headers=headers, timeout=stretched(10), trust_env=False, verify=PLAIN
        ) as client:
            yield client

    @asynccontextmanager
    async def client(
        self,
        door: Door,
        mode: ModeName,
        on_message: Callable[[object], None] | None = None,
        *,
        path: str = "/mcp",
        agent: str | None = None,
        **options: Any,
    ) -> AsyncGenerator[Client]:
        """Return the official client in this era, over HTTP to a path or over `toolcrib stdio` as an agent."""

        async def handler(message: object) -> None:
            if on_message:
                on_message(message)

        if door == "stdio":
            server = stdio_parameters(self.home, *(("--agent", agent) if agent is not None else ()))
            async with Client(
                server, mode=mode, read_timeout_seconds=stretched(20), message_handler=handler, **options
            ) as client:
                yield client
            return
        async with self.http() as http:
            wire = streamable_http_client(f"{self.url}{path}", http_client=http)
            async with Client(
                wire, mode=mode, read_timeout_seconds=stretched(20), message_handler=handler, **options
            ) as client:
                yield client


def stdio_parameters(home: Path, *options: str) -> StdioServerParameters:
    """Return the parameters with which an IDE starts the front, with its own home."""
    user = home.parent / "user"
    user.mkdir(exist_ok=True)
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "toolcrib", "stdio", "--home", str(home), *options],
        env={"HOME": str(user), "PATH": "/usr/bin:/bin", "TOOLCRIB_PORT": "0"},
        cwd=str(user),
    )


def make_lab(folder: Path) -> Lab:
    """Create a home with the lab's tools. Starts nothing."""
    home = prepare_home(folder / "home")
    lab = Lab(Settings(home=home.root, port=0))
    lab.add_module("lab", LAB_TOOLS)
    return lab


async def eventually(holds: Callable[[], bool], seconds: float = 10) -> None:
    """Wait for a condition that causes no event, such as a file written by another process."""
    with anyio.move_on_after(stretched(seconds)):
        while not holds():  # noqa: ASYNC110 no event to wait for
            await anyio.sleep(0.01)
        return
    raise AssertionError("It did not come to hold in time.")


async def cancelled_once(holds: Callable[[], bool], work: Callable[[], Awaitable[object]]) -> None:
    """Cancel `work` as soon as a condition holds that it causes. Fails if `work` ends earlier."""
    ended: list[object] = []

    async def run() -> None:
        ended.append(await work())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await eventually(holds)
        tasks.cancel_scope.cancel()
    assert ended == []
