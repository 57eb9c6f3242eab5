"""Fixtures of the crew tool tests."""

from collections.abc import AsyncGenerator

import pytest

from integration.builtin.crew.crews import Crew, open_crew


@pytest.fixture
async def crew() -> AsyncGenerator[Crew]:
    """Open a crib with agents whose sessions play scripts."""
    async with open_crew() as opened:
        yield opened
