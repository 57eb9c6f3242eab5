"""The environment of programs under test: what they need to run, and nothing that belongs to whoever runs the tests.

Above: `cribs` and `plugin`. Below: `settings`, which alone reads the environment. Values only; nothing is set here.
"""

from pathlib import Path

from toolcrib.scripted import NEEDED, claude_variables
from toolcrib.settings import Environment


def bare_environment(home: Path) -> Environment:
    """What is needed to start programs, with this HOME."""
    current = Environment.current()
    return Environment({**{name: current[name] for name in NEEDED & current.keys()}, "HOME": str(home)})


def claude_environment(home: Path, model: str) -> Environment:
    """The same for Claude Code, which then thinks with the model at this address and asks for nothing else."""
    return Environment({**bare_environment(home), **claude_variables(model)})
