"""Fixtures for all tests: asyncio is the one event loop Toolcrib runs on."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Run every async test on asyncio."""
    return "asyncio"
