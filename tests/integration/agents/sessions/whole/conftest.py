"""Fixtures with whole cribs and the real Claude Code."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from integration.agents.sessions.whole.claude_crib import ClaudeCrib, open_claude_crib
from toolcrib.base.settings import Environment
from toolcrib.testing.plugin import claude_environment, no_leaked_children, scripted_model
from toolcrib.testing.scripted_model.server import ScriptedModel

__all__ = ["claude_environment", "no_leaked_children", "scripted_model"]


@pytest.fixture
async def claude(
    no_leaked_children: None, claude_environment: Environment, scripted_model: ScriptedModel, tmp_path: Path
) -> AsyncGenerator[ClaudeCrib]:
    """Open a crib whose agents are the real Claude Code; no process may be left afterwards."""
    async with open_claude_crib(tmp_path, claude_environment, scripted_model) as claude:
        yield claude
