"""Programs of others that tests drive, installed once into the project's own folder as locked in `requirements`."""

import fcntl
import os
import subprocess
from pathlib import Path
from typing import Literal

import pytest

ROOT = Path(__file__).resolve().parent.parent


def installed(programs: Literal["node", "agents", "clients", "servers"]) -> Path:
    """The folder of these programs; a visible skip where they cannot be installed, but not in CI."""
    tools = ROOT / ".tools"
    tools.mkdir(exist_ok=True)
    with (tools / f"{programs}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several workers may ask at once
        command = ["sh", str(ROOT / "scripts" / "programs.sh"), programs]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    if done.returncode and "CI" not in os.environ:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return tools / programs
