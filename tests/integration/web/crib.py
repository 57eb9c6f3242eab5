"""A crib on a free port, with tools that a test can wait for."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import httpx2

from deadlines import stretched
from http_clients import PLAIN
from toolcrib.base.home import owner_token
from toolcrib.base.settings import Environment, Settings
from toolcrib.tools import ToolServer, tool
from toolcrib.web.limits import WireLimits
from toolcrib.web.run import Holding, hold


@dataclass
class Workbench:
    """What the tools of these tests did."""

    started: anyio.Event = field(default_factory=anyio.Event)
    cancelled: anyio.Event = field(default_factory=anyio.Event)
    release: anyio.Event = field(default_factory=anyio.Event)

    def server(self) -> ToolServer:
        """The server `bench`."""

        @tool(read_only=True)
        async def echo(text: str, times: int = 1) -> str:
            """Say it again. Use it to test."""
            return text * times

        @tool
        async def broken() -> str:
            """Fail. Use it to test."""
            raise RuntimeError("it broke")

        @tool
        async def wait() -> str:
            """Wait until released. Use it to test."""
            self.started.set()
            try:
                await self.release.wait()
            except BaseException:
                self.cancelled.set()
                raise
            return "released"

        return ToolServer("bench", tools=[echo, broken, wait])


@dataclass(frozen=True, slots=True)
class Running:
    """A held crib, its tools, and how to ask it."""

    holding: Holding
    bench: Workbench
    token: str

    @property
    def url(self) -> str:
        """Where it listens."""
        return self.holding.info.url

    @property
    def port(self) -> int:
        """The port of it."""
        return self.holding.crib.port

    def client(self, *, token: bool = True) -> httpx2.AsyncClient:
        """An HTTP client, with the owner's token or without."""
        headers = {"authorization": f"Bearer {self.token}"} if token else {}
        return httpx2.AsyncClient(
            base_url=self.url, headers=headers, timeout=stretched(10), trust_env=False, verify=PLAIN
        )


@asynccontextmanager
async def running_crib(
    home: Path, limits: WireLimits | None = None, settings: Settings | None = None
) -> AsyncGenerator[Running]:
    """A crib on a free port while the block runs."""
    settings = settings or Settings(home=home)
    environment = Environment({"HOME": str(home.parent)})
    async with hold(settings, kind="serve", port=0, environment=environment, limits=limits) as holding:
        bench = Workbench()
        holding.crib.register(bench.server())
        yield Running(holding, bench, owner_token(holding.crib.home))
