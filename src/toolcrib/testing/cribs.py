"""Temporary cribs for tests, isolated from the user's home and configuration."""

from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from toolcrib.base.settings import Environment, Settings
from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import CallResult
from toolcrib.testing.environments import bare_environment
from toolcrib.tools import ToolServer

SERVER = "tools"
"""The server of the tools under test."""


@asynccontextmanager
async def crib(
    tools: Sequence[Callable[..., Any]] = (),
    *,
    providers: Mapping[Any, Any] | None = None,
    services: Collection[str] = (),
    environment: Environment | None = None,
) -> AsyncGenerator[Crib]:
    """Yield a temporary crib with these tools on its server `tools`.

    `providers` and `services` are as for `ToolServer` and `Crib`. Without an `environment`, the crib has an empty HOME
    and none of the servers configured on this machine.
    """
    with _folders("user", "project", "crib") as (user, project, home):
        settings = Settings(home=home, port=0, default_cwd=project)
        async with Crib(settings, environment=environment or bare_environment(user), services=services) as opened:
            if tools:
                opened.register(ToolServer(SERVER, tools=tools, providers=providers or {}))
            yield opened


@contextmanager
def _folders(*names: str) -> Generator[list[Path]]:
    with TemporaryDirectory(prefix="toolcrib-", ignore_cleanup_errors=True) as top:
        folders = [Path(top, name) for name in names]
        for folder in folders:
            folder.mkdir(mode=0o700)
        yield folders


async def call(
    tool: Callable[..., Any],
    arguments: JsonObject | None = None,
    *,
    providers: Mapping[Any, Any] | None = None,
    services: Collection[str] = (),
) -> CallResult:
    """Call one tool as a model would, through a temporary crib, and return what the model would read.

    Invalid arguments, exceptions and timeouts are error results (`is_error`).
    """
    async with crib([tool], providers=providers, services=services) as opened:
        (name,) = ToolServer(SERVER, tools=[tool]).definitions
        return await opened.call(f"{SERVER}/{name}", arguments, principal=opened.owner(source="web"))
