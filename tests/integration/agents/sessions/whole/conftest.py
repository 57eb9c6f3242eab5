"""Fixtures for tests of whole cribs with the real Claude Code."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from integration.agents.sessions.whole.workshop import Workshop, open_workshop
from toolcrib.base.settings import Environment
from toolcrib.testing.plugin import claude_environment, no_leaked_children, scripted_model
from toolcrib.testing.scripted_model.server import ScriptedModel

__all__ = ["claude_environment", "no_leaked_children", "scripted_model"]


@pytest.fixture
async def workshop(
    no_leaked_children: None, claude_environment: Environment, scripted_model: ScriptedModel, tmp_path: Path
) -> AsyncGenerator[Workshop]:
    """A crib whose agents are the real Claude Code; when it is closed, no process is left."""
    async with open_workshop(tmp_path, claude_environment, scripted_model) as workshop:
        yield workshop
