"""A crib on a free port, with tools that tests can wait for."""

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
class BenchTools:
    """The tools of the server `bench`, and events of their calls."""

    started: anyio.Event = field(default_factory=anyio.Event)
    cancelled: anyio.Event = field(default_factory=anyio.Event)
    release: anyio.Event = field(default_factory=anyio.Event)

    def server(self) -> ToolServer:
        """Return the server `bench`."""

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
    """A running crib, its tools and its clients."""

    holding: Holding
    bench: BenchTools
    token: str

    @property
    def url(self) -> str:
        """The address of the crib."""
        return self.holding.info.url

    @property
    def port(self) -> int:
        """The port of the crib."""
        return self.holding.crib.port

    def client(self, *, token: bool = True) -> httpx2.AsyncClient:
        """Return an HTTP client, with or without the owner's token."""
        headers = {"authorization": f"Bearer {self.token}"} if token else {}
        return httpx2.AsyncClient(
            base_url=self.url, headers=headers, timeout=stretched(10), trust_env=False, verify=PLAIN
        )


@asynccontextmanager
async def running_crib(
    home: Path, limits: WireLimits | None = None, settings: Settings | None = None
) -> AsyncGenerator[Running]:
    """Run a crib on a free port."""
    settings = settings or Settings(home=home)
    environment = Environment({"HOME": str(home.parent)})
    async with hold(settings, kind="serve", port=0, environment=environment, limits=limits) as holding:
        bench = BenchTools()
        holding.crib.register(bench.server())
        yield Running(holding, bench, owner_token(holding.crib.home))
