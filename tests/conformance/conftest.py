"""Programs of others, installed once into the project's own folder."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NODE_TOOLS = HERE.parent.parent / ".tools" / "node"


@pytest.fixture(scope="session")
def node_programs() -> Path:
    """The folder with the programs of `package.json`; a visible skip where they cannot be installed, but not in CI."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    wanted = (HERE / "package.json").read_text(encoding="utf-8")
    NODE_TOOLS.mkdir(parents=True, exist_ok=True)
    with (NODE_TOOLS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several workers may ask at once
        done = NODE_TOOLS / "installed.json"
        if not done.exists() or done.read_text(encoding="utf-8") != wanted:
            (NODE_TOOLS / "package.json").write_text(wanted, encoding="utf-8")
            install = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", str(NODE_TOOLS)]
            tried = subprocess.run(install, check=False, capture_output=True, text=True, timeout=600)
            if tried.returncode and "CI" not in os.environ:
                pytest.skip(f"npm cannot install what the test drives: {tried.stderr[-300:]}")
            tried.check_returncode()
            done.write_text(wanted, encoding="utf-8")
    return NODE_TOOLS / "node_modules" / ".bin"
