"""The crew that tests of its tools use."""

from collections.abc import AsyncGenerator

import pytest

from integration.builtin.crew.crews import Crew, open_crew


@pytest.fixture
async def crew() -> AsyncGenerator[Crew]:
    """A crib with agents whose sessions play scripts."""
    async with open_crew() as opened:
        yield opened
