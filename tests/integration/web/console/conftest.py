"""Fixtures for tests of console pages."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from integration.web.console.console_client import ConsoleClient, open_console


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One event loop for a module, whose tests share a crib."""
    return "asyncio"


@pytest.fixture
async def console(tmp_path: Path) -> AsyncGenerator[ConsoleClient]:
    """A signed-in client of the console of a new crib."""
    async with open_console(tmp_path / "home") as opened:
        yield opened
