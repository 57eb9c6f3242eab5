"""Fixtures of the tests of the console's pages."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from integration.web.console.visitor import Visitor, visiting


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """One loop for a module, so that its tests may share a crib."""
    return "asyncio"


@pytest.fixture
async def visitor(tmp_path: Path) -> AsyncGenerator[Visitor]:
    """A browser at the console of a crib that nothing was done to yet."""
    async with visiting(tmp_path / "home") as opened:
        yield opened
