"""Environments for programs under test: what they need to run, and nothing of the user's.

Only returns values; the process environment is not changed.
"""

from pathlib import Path

from toolcrib.base.settings import Environment
from toolcrib.testing.scripted_model.variables import NEEDED, claude_variables


def bare_environment(home: Path) -> Environment:
    """Return the variables needed to start programs, with this HOME."""
    current = Environment.current()
    return Environment({**{name: current[name] for name in NEEDED & current.keys()}, "HOME": str(home)})


def claude_environment(home: Path, model: str) -> Environment:
    """Return an environment in which Claude Code uses the model at this URL and no other network."""
    return Environment({**bare_environment(home), **claude_variables(model)})
