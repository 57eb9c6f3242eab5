"""Fixtures for all tests: asyncio is the one event loop Toolcrib runs on, and where programs of others are."""

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
# How fast inputs are made says nothing about the program where other work waits for the processor.
settings.register_profile("toolcrib", suppress_health_check=[HealthCheck.too_slow], deadline=None)
settings.load_profile("toolcrib")


def _leave_unset(_: str | None) -> None:
    """Stand in for the plugin's `set_current_async_library`.

    The plugin names the event loop for everything that runs below it. No program of a user does that, so anyio called
    from a callback of the loop fails there (`NoEventLoopError`), and has to fail here too.
    """


setattr(anyio.pytest_plugin, "set_current_async_library", _leave_unset)  # noqa: B010 it is not exported


def pytest_configure() -> None:
    """Tear down what was started when the run is terminated."""
    end_on_sigterm()


def pytest_runtest_setup() -> None:
    """Do so also after a test in which the program handled signals itself and left the default."""
    end_on_sigterm()


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
def installed_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the unpacked wheel of this project, for `PYTHONPATH`."""
    return unpack_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def node_programs(pytestconfig: pytest.Config) -> Path:
    """The folder with the programs that npm installs."""
    return installed("node", pytestconfig) / "node_modules" / ".bin"


@pytest.fixture(scope="session")
def agent_programs(pytestconfig: pytest.Config) -> Path:
    """The folder with the coding agents that npm installs."""
    return installed("agents", pytestconfig) / "node_modules"


@pytest.fixture(scope="session")
def client_programs(pytestconfig: pytest.Config) -> Path:
    """The folder with the coding tools that npm installs, to be connected."""
    return installed("clients", pytestconfig) / "node_modules" / ".bin"


@pytest.fixture(scope="session")
def app_programs(pytestconfig: pytest.Config) -> Path:
    """The folder with more coding apps that npm installs, for `make test-all`."""
    return installed("apps", pytestconfig) / "node_modules" / ".bin"


@pytest.fixture(scope="session")
def python_servers(pytestconfig: pytest.Config) -> Path:
    """The folder with the MCP servers that come as Python packages."""
    return installed("servers", pytestconfig) / "bin"
