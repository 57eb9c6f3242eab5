"""Fixtures for tests that need a crib on the network."""

import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from integration.web.crib import Running, running_crib


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The event loop that the crib uses on this system."""
    return "asyncio", {"use_uvloop": sys.platform != "win32"}


@pytest.fixture
async def running(tmp_path: Path) -> AsyncGenerator[Running]:
    """A crib on a free port."""
    async with running_crib(tmp_path / "home") as crib:
        yield crib
