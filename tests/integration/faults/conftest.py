"""Fixtures of the fault tests."""

from pathlib import Path

import pytest

from integration.faults.harness import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a user account with a home for a crib."""
    return Machine(tmp_path)
