"""Fixtures: the processes of a crib, none of which may be left when a test is over."""

import gc
import os
from collections.abc import AsyncGenerator
from pathlib import Path

import psutil
import pytest

from toolcrib.base.processes.process import Processes, ProcessTimeouts


def open_files() -> int:
    """Return how many descriptors this process has open."""
    return len(list(Path("/dev/fd").iterdir()))


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncGenerator[Processes]:
    """A crib's processes; the test process has no more children afterwards than it had."""
    before, children = open_files(), psutil.Process().children()
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SECRET_TOKEN": "hunter2"}
    async with Processes(
        environment, "crib-under-test", tmp_path / "children.json", ProcessTimeouts(stop=0.3, write=3.0)
    ) as opened:
        yield opened
    assert psutil.Process().children() == children
    if open_files() > before:
        gc.collect()  # some only wait for the collector; it takes longer than most of these tests
    assert open_files() <= before
