"""Fixtures for all tests: asyncio is the one event loop Toolcrib runs on, and where programs of others are."""

import gc
import hashlib
from pathlib import Path

import pytest

from programs import installed


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mix modules that take long with others: workers begin with a part each, and get equal ones like this."""
    items.sort(key=lambda item: hashlib.sha256(item.nodeid.partition("::")[0].encode()).digest())


def pytest_collection_finish() -> None:
    """Keep the collector away from the thousands of tests that wait: to look through them takes a fifth of the run."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def anyio_backend() -> str:
    """Run every async test on asyncio."""
    return "asyncio"


@pytest.fixture(scope="session")
def node_programs() -> Path:
    """The folder with the programs that npm installs."""
    return installed("node") / "node_modules" / ".bin"


@pytest.fixture(scope="session")
def agent_programs() -> Path:
    """The folder with the coding agents that npm installs."""
    return installed("agents") / "node_modules"


@pytest.fixture(scope="session")
def client_programs() -> Path:
    """The folder with the coding tools that npm installs, to be connected."""
    return installed("clients") / "node_modules" / ".bin"


@pytest.fixture(scope="session")
def python_servers() -> Path:
    """The folder with the MCP servers that come as Python packages."""
    return installed("servers") / "bin"
