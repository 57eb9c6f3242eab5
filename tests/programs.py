"""Programs of others that tests drive, installed once into the project's own folder as locked in `requirements`."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import Literal

import pytest

ROOT = Path(__file__).resolve().parent.parent


def installed(programs: Literal["node", "agents", "clients", "servers", "frameworks"]) -> Path:
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


def chromium() -> str:
    """A Chromium of this machine; on a Debian root installs one. A visible skip where there is none, but not in CI."""
    found = _browser()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        tools = ROOT / ".tools"
        tools.mkdir(exist_ok=True)
        with (tools / "chromium.lock").open("w") as lock, (tools / "chromium.log").open("w") as log:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for words in (("update",), ("install", "--yes", "--no-install-recommends", "chromium")):
                command = ["apt-get", "--quiet", *words]
                subprocess.run(command, check=False, stdout=log, stderr=log, stdin=subprocess.DEVNULL, timeout=600)
        found = _browser()
    if found is None and "CI" not in os.environ:
        pytest.skip("There is no Chromium here.")
    assert found is not None, "There is no Chromium here, and none could be installed: see .tools/chromium.log"
    return found


def _browser() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
