"""Fixtures of the tests that need a crib on the network."""

import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from integration.web.crib import Running, running_crib


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop that the crib runs on where there is one."""
    return "asyncio", {"use_uvloop": sys.platform != "win32"}


@pytest.fixture
async def running(tmp_path: Path) -> AsyncGenerator[Running]:
    """A crib on a free port."""
    async with running_crib(tmp_path / "home") as crib:
        yield crib
