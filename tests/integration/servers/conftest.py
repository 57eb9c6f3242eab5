"""Fixtures: a machine of one person."""

from pathlib import Path

import pytest

from integration.servers.user_machine import UserMachine
from toolcrib.servers.servers import Servers


@pytest.fixture
def machine(tmp_path: Path) -> UserMachine:
    """A person with servers in several tools."""
    return UserMachine.at(tmp_path)


@pytest.fixture
def servers(machine: UserMachine) -> Servers:
    """The desk of that person's crib."""
    return machine.open_servers()
