"""Fixtures for agents that speak the Agent Client Protocol."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from integration.agents.sessions.acp.host import Scripted, endpoint_name, listening, runner_of
from toolcrib import Crib
from toolcrib.model.json import JsonObject
from toolcrib.testing.environments import bare_environment
from toolcrib.testing.plugin import no_leaked_children
from toolcrib.testing.runner_rig import OwnTool, RunnerRig

__all__ = ["no_leaked_children"]


@pytest.fixture
def scripted(tmp_path: Path) -> Scripted:
    """Return the folder of the scripted agent."""
    folder = tmp_path / "agent"
    folder.mkdir()
    return Scripted(folder)


@pytest.fixture
async def crib(tmp_path: Path, no_leaked_children: None) -> AsyncGenerator[Crib]:
    """Run a listening crib."""
    async with listening(tmp_path) as opened:
        yield opened


@pytest.fixture
async def rig(crib: Crib, scripted: Scripted, tmp_path: Path) -> AsyncGenerator[RunnerRig]:
    """The scripted agent as a runtime; its own tool is Bash."""
    project = tmp_path / "project"

    def touch(name: str) -> JsonObject:
        return {"command": f"touch {name}"}

    async with runner_of(crib, scripted.program(), bare_environment(tmp_path / "user")) as runner:
        yield RunnerRig(
            runner,
            scripted.script,
            str(project),
            name_of=endpoint_name,
            own_tool=OwnTool(
                "Bash", touch("one"), touch("two"), lambda arguments: (project / arguments["command"][6:]).is_file()
            ),
            model="other",
            counts_turns=False,
            gives_reasons=False,
            takes_changes=False,
        )
