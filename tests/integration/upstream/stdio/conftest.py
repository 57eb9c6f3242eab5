"""Fixtures: the processes of a crib, none of which may outlive a test."""

import gc
import os
from collections.abc import AsyncGenerator
from pathlib import Path

import psutil
import pytest

from toolcrib.base.processes.process import Processes, ProcessTimeouts


def open_files() -> int:
    """Return the number of open descriptors of this process."""
    return len(list(Path("/dev/fd").iterdir()))


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncGenerator[Processes]:
    """The processes of a crib. The test must not leave any child process or descriptor open."""
    before, children = open_files(), psutil.Process().children()
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SECRET_TOKEN": "hunter2"}
    async with Processes(
        environment, "crib-under-test", tmp_path / "children.json", ProcessTimeouts(stop=0.3, write=3.0)
    ) as opened:
        yield opened
    assert psutil.Process().children() == children
    if open_files() > before:
        gc.collect()  # some close only when collected, and collecting takes longer than most of these tests
    assert open_files() <= before
