"""Several cribs in this process on one PostgreSQL, with a runtime that plays scripts. Not a test itself."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from toolcrib import Crib, Settings
from toolcrib.model.json import Json
from toolcrib.testing.environments import bare_environment
from toolcrib.testing.played import PlayedRunner

SCRIPTS: dict[str, Json] = {
    "text": [{"blocks": [{"text": "done"}]}],
    "hang": [{"hang_s": 600}],
    "ping": [{"blocks": [{"tool": "mcp__toolcrib__ping", "input": {}}]}, {"blocks": [{"text": "done"}]}],
}


@asynccontextmanager
async def crib_on(database: str, folder: Path) -> AsyncGenerator[Crib]:
    """Return a crib with its own home in this folder."""
    user = folder / "user"
    user.mkdir(parents=True, exist_ok=True)
    settings = Settings(home=folder / "crib", port=0, default_cwd=user, database_url=database)
    async with Crib(settings, environment=bare_environment(user)) as crib:
        runner = PlayedRunner(SCRIPTS)
        runner.name = "claude"
        crib.runners.add(runner)
        yield crib
