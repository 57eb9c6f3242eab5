"""Fixtures for tests with cribs, tools and agents: `pytest_plugins = ["toolcrib.testing.plugin"]` in a conftest.

Nothing happens until a test asks for one of them. Async tests run with anyio's own plugin (`@pytest.mark.anyio`, on
asyncio).

Above: tests. Below: the rest of `testing`. It must never change anything that the end of the test does not undo.
"""

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

from toolcrib.host import Crib
from toolcrib.scripted import ScriptedModel
from toolcrib.settings import Environment
from toolcrib.testing import cribs, environments
from toolcrib.testing.framework import pytest
from toolcrib.testing.processes import descendants, left_behind


@pytest.fixture
def scripted_model() -> Generator[ScriptedModel]:
    """A model that says what `scripted_model.scripts` tells it to."""
    with ScriptedModel() as model:
        yield model


@pytest.fixture
def claude_environment(
    scripted_model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Environment:
    """The environment of Claude Code with the scripted model and a HOME of its own; this process has it too.

    What starts Claude Code adds to the variables of the process and cannot take any away, so they are taken here.
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
    """A crib on a home of its own; in a test with `claude_environment` its agents think with the scripted model."""
    if "no_leaked_children" in request.fixturenames:
        request.getfixturevalue("no_leaked_children")  # so that it looks only once the crib is closed
    is_scripted = "claude_environment" in request.fixturenames
    environment: Environment | None = request.getfixturevalue("claude_environment") if is_scripted else None
    async with cribs.crib(environment=environment) as opened:
        yield opened


@pytest.fixture
def no_leaked_children() -> Generator[None]:
    """Fails a test that leaves a process behind, and ends that process."""
    before = descendants()
    yield
    left = left_behind(before)
    assert not left, f"Processes were left behind: {left}"
