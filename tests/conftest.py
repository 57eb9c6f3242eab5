"""Fixtures for all tests: asyncio as the only event loop, and the folders of third-party programs."""

import gc
import hashlib
import os
from pathlib import Path

import anyio.pytest_plugin
import pytest
from hypothesis import HealthCheck, settings

from deadlines import be_patient
from http_clients import NO_KEYRING
from process_cleanup import end_on_sigterm
from programs import installed
from wheel import unpack_wheel

os.environ.update(NO_KEYRING)
be_patient()
# Deadlines for generated inputs would only measure how busy the machine is.
settings.register_profile("toolcrib", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("toolcrib")


def _leave_unset(_: str | None) -> None:
    """Replace the plugin's `set_current_async_library`.

    The plugin sets the name of the event loop for everything that runs below it. Users' programs do not, so anyio
    raises `NoEventLoopError` when a callback of the loop calls it. Tests must see that error too.

    """


setattr(anyio.pytest_plugin, "set_current_async_library", _leave_unset)  # noqa: B010 not exported


def pytest_configure() -> None:
    """End what tests started when the run is terminated."""
    end_on_sigterm()


def pytest_runtest_setup() -> None:
    """Install the handler again after tests in which the program replaced it."""
    end_on_sigterm()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mix slow modules with others, because workers begin with a part each."""
    items.sort(key=lambda item: hashlib.sha256(item.nodeid.partition("::")[0].encode()).digest())


def pytest_collection_finish() -> None:
    """Freeze collected tests: scanning thousands of them takes the garbage collector a fifth of the run."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def anyio_backend() -> str:
    """Run every async test on asyncio."""
    return "asyncio"


@pytest.fixture(scope="session")
def installed_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the unpacked wheel of this project, for `PYTHONPATH`."""
    return unpack_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def node_programs(pytestconfig: pytest.Config) -> Path:
    """Return the folder with the programs that npm installs."""
    return installed("node", pytestconfig) / "node_modules" / ".bin"


@pytest.fixture(scope="session")
def agent_programs(pytestconfig: pytest.Config) -> Path:
    """Return the folder with the coding agents that npm installs."""
    return installed("agents", pytestconfig) / "node_modules"


@pytest.fixture(scope="session")
def client_programs(pytestconfig: pytest.Config) -> Path:
    """Return the folder with the coding apps that npm installs, for `connect`."""
    return installed("clients", pytestconfig) / "node_modules" / ".bin"


@pytest.fixture(scope="session")
def app_programs(pytestconfig: pytest.Config) -> Path:
    """Return the folder with more coding apps that npm installs, for `make test-all`."""
    return installed("apps", pytestconfig) / "node_modules" / ".bin"


@pytest.fixture(scope="session")
def python_servers(pytestconfig: pytest.Config) -> Path:
    """Return the folder with the MCP servers that are Python packages."""
    return installed("servers", pytestconfig) / "bin"
