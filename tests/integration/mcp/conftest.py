"""A running crib for the tests of its endpoint."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from lab import Lab, make_lab
from toolcrib.server.run import hold


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncGenerator[Lab]:
    """A crib in this process, listening on a port of its own."""
    stopped = make_lab(tmp_path)
    async with hold(stopped.settings, kind="serve") as holding:
        yield replace(stopped, url=holding.info.url)
