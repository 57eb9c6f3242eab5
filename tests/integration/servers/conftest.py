"""Fixtures: a machine of one person."""

from pathlib import Path

import pytest

from integration.servers.world import World
from toolcrib.servers.servers import Servers


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A person with servers in several tools."""
    return World.at(tmp_path)


@pytest.fixture
def desk(world: World) -> Servers:
    """The desk of that person's crib."""
    return world.desk()
