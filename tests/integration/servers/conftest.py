"""Fixtures: a user's machine and the servers of its crib."""

from pathlib import Path

import pytest

from integration.servers.user_machine import UserMachine
from toolcrib.servers.servers import Servers


@pytest.fixture
def machine(tmp_path: Path) -> UserMachine:
    """A user with servers in several apps."""
    return UserMachine.at(tmp_path)


@pytest.fixture
def servers(machine: UserMachine) -> Servers:
    """The servers of that user's crib."""
    return machine.open_servers()
