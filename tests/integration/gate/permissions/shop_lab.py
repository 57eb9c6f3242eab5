"""A listening crib with tools that record every call, and clients of it for its owner and for tokens."""

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
    """A server whose tools record what they were called with."""

    sold: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])

    def server(self) -> ToolServer:
        """Return the server `shop`."""

        @tool
        async def sell(what: str, amount: int = 1) -> str:
            """Sell goods."""
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
class ShopLab:
    """A listening crib with a shop, and the API client of its owner."""

    holding: Holding
    owner: ApiClient
    shop: Shop

    @property
    def crib(self) -> Crib:
        """The crib itself."""
        return self.holding.crib

    async def token(self, name: str, **fields: object) -> str:
        """Create a token and return its secret."""
        return str((await self.owner.permissions.create_token({"name": name, **fields}))["secret"])

    @asynccontextmanager
    async def rest(self, secret: str) -> AsyncGenerator[ApiClient]:
        """Open an API client with this token."""
        async with ApiClient(self.holding.info.url, secret) as client:
            yield client

    def http(self, secret: str | None = None) -> httpx2.AsyncClient:
        """Return an HTTP client with a token; the owner's by default."""
        bearer = secret or owner_token(self.crib.home)
        headers = {"authorization": f"Bearer {bearer}"}
        return httpx2.AsyncClient(
            base_url=self.holding.info.url, headers=headers, timeout=stretched(10), trust_env=False, verify=PLAIN
        )

    @asynccontextmanager
    async def mcp(self, secret: str, era: ModeName, **options: Any) -> AsyncGenerator[McpClient]:
        """Open the official MCP client with this token."""
        async with self.http(secret) as http:
            wire = streamable_http_client(self.holding.mcp_url, http_client=http)
            async with McpClient(wire, mode=era, read_timeout_seconds=stretched(20), **options) as client:
                yield client

    def replace(self, server: ToolServer) -> None:
        """Replace the server of the same name."""
        self.crib.catalog.exchange([server.name], [PythonSource(server)], ())

    async def until(self, look: Callable[[], Awaitable[T | None]]) -> T:
        """Return the first truthy result of `look`; call it again after every event."""
        with anyio.fail_after(15):
            async for _ in self.owner.events(0):
                if found := await look():
                    return found
        raise AssertionError("The crib ended before it became true.")

    async def pending_approval(self) -> JsonObject:
        """Wait for a pending approval and return it."""

        async def look() -> JsonObject | None:
            found = await self.owner.permissions.approvals(status="pending")
            return found[0] if found else None

        return await self.until(look)

    async def answer(self, id: str, decision: str, **more: object) -> JsonObject:
        """Answer an approval as the owner."""
        return await self.owner.permissions.answer(id, {"decision": decision, **more})

    async def records(self, tool: str = "sell") -> list[JsonObject]:
        """Return the audit records of a tool, oldest first."""
        return [*reversed(await self.owner.audit(tool=tool))]


class BackgroundCall:
    """A call that runs in the background, with its result or error."""

    def __init__(self) -> None:
        self.result: Any = None
        self.raised: Exception | None = None
        self.scope = anyio.CancelScope()


@asynccontextmanager
async def background_call(call: Callable[[], Awaitable[object]]) -> AsyncGenerator[BackgroundCall]:
    """Run a call while the block runs; wait for its end afterwards."""
    background = BackgroundCall()

    async def run() -> None:
        with background.scope:
            try:
                background.result = await call()
            except Exception as error:  # noqa: BLE001 boundary: the test examines it
                background.raised = error

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            yield background


@asynccontextmanager
async def open_shop_lab(folder: Path, **servers: JsonObject) -> AsyncGenerator[ShopLab]:
    """Open a crib in this folder with a shop and these upstream servers."""
    home = prepare_home(folder / "home")
    settings = Settings(home=home.root, port=0)
    if servers:
        (home.root / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    environment = Environment({"HOME": str(folder), "PATH": "/usr/bin:/bin"})
    async with hold(settings, kind="serve", environment=environment) as holding:
        shop = Shop()
        holding.crib.register(shop.server())
        async with ApiClient(holding.info.url, owner_token(home), source="api") as owner:
            lab = ShopLab(holding, owner, shop)
            for name in servers:
                await owner.test_server(name)
            yield lab


def expire_approvals_after(monkeypatch: pytest.MonkeyPatch, seconds_allowed: float) -> None:
    """Make every approval expire after this many seconds."""
    original = Approvals.open

    def open_briefly(
        self: Approvals,
        approval: ApprovalRequest,
        *,
        seconds: float = 0.0,
        check: Check | None = None,
        is_detached: bool = False,
    ) -> object:
        return original(self, approval, seconds=seconds_allowed, check=check, is_detached=is_detached)

    monkeypatch.setattr(Approvals, "open", open_briefly)


def upstream(*words: str) -> JsonObject:
    """Return the definition of a test server, as in `mcp.json`."""
    return {
        "command": sys.executable,
        "args": ["-S", "-m", *words],
        "env": {"PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"},
    }
