"""Fixtures of the tests of the console's pages."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from integration.web.console.console_client import ConsoleClient, open_console


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop for a module, so that its tests may share a crib."""
    return "asyncio"


@pytest.fixture
async def console(tmp_path: Path) -> AsyncGenerator[ConsoleClient]:
    """A browser at the console of a crib that nothing was done to yet."""
    async with open_console(tmp_path / "home") as opened:
        yield opened
