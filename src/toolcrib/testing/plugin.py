"""Pytest fixtures for cribs, tools and agents: `pytest_plugins = ["toolcrib.testing.plugin"]` in a conftest.

Fixtures are inactive until a test requests them. Async tests run with anyio's plugin (`@pytest.mark.anyio`, on
asyncio).

Must never change anything that is not undone after the test.
"""

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

from toolcrib.base.settings import Environment
from toolcrib.host import Crib
from toolcrib.testing import cribs, environments
from toolcrib.testing.framework import pytest
from toolcrib.testing.processes import descendants, left_behind
from toolcrib.testing.scripted_model.server import ScriptedModel


@pytest.fixture
def scripted_model() -> Generator[ScriptedModel]:
    """A model that plays `scripted_model.scripts`."""
    with ScriptedModel() as model:
        yield model


@pytest.fixture
def claude_environment(
    scripted_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Environment:
    """The environment of Claude Code with the scripted model and its own HOME, also applied to this process.

    The launcher of Claude Code adds to the variables of the process and cannot remove any, so they are removed here.
    """
    home: Path = tmp_path_factory.mktemp("user")
    environment = environments.claude_environment(home, scripted_model.url)
    for name in Environment.current():
        if not name.startswith(("PYTEST_", "COV_", "COVERAGE_")):
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return environment


@pytest.fixture
async def crib(request: pytest.FixtureRequest) -> AsyncGenerator[Crib]:
    """A crib on a temporary home; with `claude_environment`, its agents use the scripted model."""
    if "no_leaked_children" in request.fixturenames:
        request.getfixturevalue("no_leaked_children")  # must be checked after the crib is closed
    is_scripted = "claude_environment" in request.fixturenames
    environment: Environment | None = request.getfixturevalue("claude_environment") if is_scripted else None
    async with cribs.crib(environment=environment) as opened:
        yield opened


@pytest.fixture
def no_leaked_children() -> Generator[None]:
    """Fail a test that leaves a process behind, and kill that process."""
    before = descendants()
    yield
    left = left_behind(before)
    assert not left, f"Processes are still running: {left}"
