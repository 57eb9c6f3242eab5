"""Programs of others, installed once into the project's own folder."""

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NODE_TOOLS = HERE.parent.parent / ".tools" / "node"


@pytest.fixture(scope="session")
def node_programs() -> Path:
    """The folder with the programs of `package.json`; a visible skip where there is no npm to install them with."""
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
            subprocess.run(install, check=True, capture_output=True, timeout=600)
            done.write_text(wanted, encoding="utf-8")
    return NODE_TOOLS / "node_modules" / ".bin"
