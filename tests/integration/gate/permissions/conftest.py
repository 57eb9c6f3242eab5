"""A crib with a shop, for the tests of what is allowed in it."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from integration.gate.permissions.answering import Desk, open_desk


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncGenerator[Desk]:
    """A crib with a shop and no upstream servers."""
    async with open_desk(tmp_path) as desk:
        yield desk
