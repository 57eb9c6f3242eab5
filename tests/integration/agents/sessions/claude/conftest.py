"""Fixtures with the real Claude Code on the scripted model."""

from pathlib import Path

import pytest

from toolcrib.agents.sessions.claude.runtime import ClaudeRuntime
from toolcrib.base.settings import Environment
from toolcrib.model.json import JsonObject
from toolcrib.testing.plugin import claude_environment, no_leaked_children, scripted_model
from toolcrib.testing.runner_rig import OwnTool, RunnerRig
from toolcrib.testing.scripted_model.server import ScriptedModel

__all__ = ["claude_environment", "no_leaked_children", "scripted_model"]

_OPTIONS = [{"label": "A", "description": "a"}, {"label": "B", "description": "b"}]
_QUESTION: JsonObject = {"question": "Which?", "header": "H", "multiSelect": False, "options": _OPTIONS}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a directory to work in."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def runner(claude_environment: Environment, no_leaked_children: None, tmp_path: Path) -> ClaudeRuntime:
    """Return a runtime; no process may be left after the test."""
    return ClaudeRuntime(claude_environment, tmp_path / "run")


@pytest.fixture
def rig(runner: ClaudeRuntime, scripted_model: ScriptedModel, project: Path) -> RunnerRig:
    """The runtime with its model; Claude Code's own tools are Write and AskUserQuestion."""

    def written(name: str) -> JsonObject:
        return {"file_path": str(project / name), "content": name}

    return RunnerRig(
        runner,
        scripted_model.scripts.__setitem__,
        str(project),
        own_tool=OwnTool(
            "Write", written("one"), written("two"), lambda arguments: Path(arguments["file_path"]).is_file()
        ),
        question=("AskUserQuestion", {"questions": [_QUESTION]}),
        model="claude-sonnet-4-5",
    )
