"""A crib that listens, tools that note every call, and the people and programs that use it. Not a test itself."""

import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import anyio
import httpx2
import pytest
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

from deadlines import stretched
from http_clients import PLAIN
from lab import ModeName
from toolcrib.base.home import owner_token, prepare_home
from toolcrib.base.settings import Environment, Settings
from toolcrib.gate.approvals.approvals import Approvals
from toolcrib.gate.approvals.requests import Check
from toolcrib.host import Crib
from toolcrib.model.approvals import ApprovalRequest
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import ToolRef
from toolcrib.tools import PythonSource, ToolServer, tool
from toolcrib.web.api_client.api_client import ApiClient
from toolcrib.web.run import Holding, hold

TESTS = Path(__file__).parents[3]
SELL = ToolRef("shop", "sell")
T = TypeVar("T")


@dataclass
class Shop:
    """A server whose tools note what they were called with."""

    sold: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])

    def server(self) -> ToolServer:
        """The server `shop`."""

        @tool
        async def sell(what: str, amount: int = 1) -> str:
            """Sell something."""
            self.sold.append((what, amount))
            return f"sold {amount} {what}"

        @tool(read_only=True)
        async def look() -> str:
            """Look at the shelves."""
            self.sold.append(("look", 0))
            return "shelves"

        @tool(privileged=True)
        async def close() -> str:
            """Close the shop."""
            self.sold.append(("close", 0))
            return "closed"

        return ToolServer("shop", tools=[sell, look, close])


@dataclass
class Desk:
    """A crib with a shop, and its owner."""

    holding: Holding
    owner: ApiClient
    shop: Shop

    @property
    def crib(self) -> Crib:
        """The crib itself."""
        return self.holding.crib

    async def token(self, name: str, **fields: object) -> str:
        """A new token's secret."""
        return str((await self.owner.permissions.create_token({"name": name, **fields}))["secret"])

    @asynccontextmanager
    async def rest(self, secret: str) -> AsyncGenerator[ApiClient]:
        """A program that has this token."""
        async with ApiClient(self.holding.info.url, secret) as client:
            yield client

    def http(self, secret: str | None = None) -> httpx2.AsyncClient:
        """Plain HTTP with a token, the owner's unless another is named."""
        bearer = secret or owner_token(self.crib.home)
        headers = {"authorization": f"Bearer {bearer}"}
        return httpx2.AsyncClient(
            base_url=self.holding.info.url, headers=headers, timeout=stretched(10), trust_env=False, verify=PLAIN
        )

    @asynccontextmanager
    async def mcp(self, secret: str, era: ModeName, **options: Any) -> AsyncGenerator[McpClient]:
        """The official client with this token."""
        async with self.http(secret) as http:
            wire = streamable_http_client(self.holding.mcp_url, http_client=http)
            async with McpClient(wire, mode=era, read_timeout_seconds=stretched(20), **options) as client:
                yield client

    def replace(self, server: ToolServer) -> None:
        """Another server in the place of the one that has its name."""
        self.crib.catalog.exchange([server.name], [PythonSource(server)], ())

    async def until(self, look: Callable[[], Awaitable[T | None]]) -> T:
        """What `look` gives: it looks, and looks again at every event."""
        with anyio.fail_after(15):
            async for _ in self.owner.events(0):
                if found := await look():
                    return found
        raise AssertionError("The crib ended before it came to hold.")

    async def question(self) -> JsonObject:
        """The question that waits for a person."""

        async def look() -> JsonObject | None:
            found = await self.owner.permissions.approvals(status="pending")
            return found[0] if found else None

        return await self.until(look)

    async def answer(self, id: str, decision: str, **more: object) -> JsonObject:
        """The owner answers."""
        return await self.owner.permissions.answer(id, {"decision": decision, **more})

    async def records(self, tool: str = "sell") -> list[JsonObject]:
        """What is on record of a tool, oldest first."""
        return [*reversed(await self.owner.audit(tool=tool))]


class Waiting:
    """A call under way: what it gave or raised in the end."""

    def __init__(self) -> None:
        self.gave: Any = None
        self.raised: Exception | None = None
        self.scope = anyio.CancelScope()


@asynccontextmanager
async def calling(call: Callable[[], Awaitable[object]]) -> AsyncGenerator[Waiting]:
    """A call that is under way while the block runs, and over after it."""
    waiting = Waiting()

    async def run() -> None:
        with waiting.scope:
            try:
                waiting.gave = await call()
            except Exception as error:  # noqa: BLE001 boundary: looked at by the test
                waiting.raised = error

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            yield waiting


@asynccontextmanager
async def open_desk(folder: Path, **servers: JsonObject) -> AsyncGenerator[Desk]:
    """A crib in this folder with a shop and these upstream servers."""
    home = prepare_home(folder / "home")
    settings = Settings(home=home.root, port=0)
    if servers:
        (home.root / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    environment = Environment({"HOME": str(folder), "PATH": "/usr/bin:/bin"})
    async with hold(settings, kind="serve", environment=environment) as holding:
        shop = Shop()
        holding.crib.register(shop.server())
        async with ApiClient(holding.info.url, owner_token(home), source="api") as owner:
            desk = Desk(holding, owner, shop)
            for name in servers:
                await owner.test_server(name)
            yield desk


def unanswered(monkeypatch: pytest.MonkeyPatch, least: float) -> None:
    """Let every question run out after so many seconds, whatever is asked for."""
    asked = Approvals.open

    def briefly(
        self: Approvals,
        question: ApprovalRequest,
        *,
        seconds: float = 0.0,
        check: Check | None = None,
        is_detached: bool = False,
    ) -> object:
        return asked(self, question, seconds=least, check=check, is_detached=is_detached)

    monkeypatch.setattr(Approvals, "open", briefly)


def upstream(*words: str) -> JsonObject:
    """One of the small servers, as it stands in a file."""
    return {
        "command": sys.executable,
        "args": ["-S", "-m", *words],
        "env": {"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"},
    }
