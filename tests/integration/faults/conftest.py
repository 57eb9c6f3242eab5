"""A person with a home, for all tests of faults."""

from pathlib import Path

import pytest

from integration.faults.harness import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A person with a home."""
    return Bench(tmp_path)
