"""Cribs for tests: a home of their own for as long as a test lasts, and nothing of the user's.

Above: `plugin` makes fixtures of these, authors of tools call them. Below: `host`.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from toolcrib.host import Crib
from toolcrib.model.json import JsonObject
from toolcrib.model.tools import CallResult
from toolcrib.settings import Environment, Settings
from toolcrib.testing.environments import bare_environment
from toolcrib.tools import ToolServer

SERVER = "tools"
"""The server that tools under test are on."""


@asynccontextmanager
async def crib(
    tools: Sequence[Callable[..., Any]] = (),
    *,
    providers: Mapping[Any, Any] | None = None,
    services: Collection[str] = (),
    environment: Environment | None = None,
) -> AsyncGenerator[Crib]:
    """A crib that is gone afterwards, with these tools on its server `tools`.

    `providers` and `services` are as for `ToolServer` and `Crib`. Without an `environment` the crib sees an empty HOME
    and none of the servers that are configured on this machine.
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
    """Call one tool as a model would, through a crib of its own: what comes back is what the model would read.

    Arguments that do not fit, exceptions and a passed time-out are error results (`is_error`).
    """
    async with crib([tool], providers=providers, services=services) as opened:
        (name,) = ToolServer(SERVER, tools=[tool]).definitions
        return await opened.call(f"{SERVER}/{name}", arguments, principal=opened.owner(source="web"))
