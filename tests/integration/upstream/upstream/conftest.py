"""Fixtures: a pool on real processes, none of which may outlive a test."""

import os
from collections.abc import AsyncGenerator
from pathlib import Path

import psutil
import pytest

from integration.upstream.upstream.harness import PoolHarness, open_harness
from toolcrib.base.processes.process import Processes, ProcessTimeouts


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncGenerator[Processes]:
    """The processes of a crib. The test must not leave any child process."""
    children = psutil.Process().children()
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    records = tmp_path / "children.json"
    async with Processes(environment, "crib-under-test", records, ProcessTimeouts(stop=0.3, write=3.0)) as opened:
        yield opened
    assert psutil.Process().children() == children


@pytest.fixture
async def harness(processes: Processes, tmp_path: Path) -> AsyncGenerator[PoolHarness]:
    """A pool with short timeouts that connects its servers at once."""
    async with open_harness(processes, tmp_path) as opened:
        yield opened
