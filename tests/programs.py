"""Third-party programs for tests, installed once into the project's own folder as locked in `requirements`."""

import fcntl
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest
from _pytest.capture import CaptureManager

ROOT = Path(__file__).resolve().parent.parent
LOCK = "package-lock.json"


LONGEST = 900
"""Seconds for all downloads of one set of programs; `scripts/programs.sh` bounds each of them."""


def installed(
    programs: Literal["node", "agents", "clients", "apps", "ui_servers", "servers", "frameworks", "fastmcp"],
    config: pytest.Config | None = None,
) -> Path:
    """Return the folder of these programs. If they cannot be installed, skips visibly, or fails in CI.

    A set that could not be installed is not tried again in the same run.

    """
    tools = ROOT / ".tools"
    tools.mkdir(exist_ok=True)
    with (tools / f"{programs}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several workers may call this at once
        failure = _failed_before(tools / f"{programs}.failed") or _install(programs, config)
    if failure is not None and "CI" not in os.environ:
        pytest.skip(failure)
    assert failure is None, failure
    return tools / programs


def _install(programs: str, config: pytest.Config | None) -> str | None:
    """Install the programs if they are missing. Returns why that failed."""
    command = ["sh", str(ROOT / "scripts" / "programs.sh"), programs]
    if not _is_installed(programs):
        _announce(programs, config)
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        failure = f"toolcrib: installing {programs} took more than {LONGEST} s. Details: .tools/{programs}.log"
    else:
        failure = done.stderr.strip().splitlines()[-1] if done.returncode else None
    if failure is not None:
        (ROOT / ".tools" / f"{programs}.failed").write_text(f"{_run()}\n{failure}\n", encoding="utf-8")
    return failure


def _failed_before(note: Path) -> str | None:
    """Return why these programs could not be installed earlier in this run."""
    said = note.read_text(encoding="utf-8").splitlines() if note.exists() else []
    return said[1] if len(said) > 1 and said[0] == _run() else None


def _run() -> str:
    """Return the id of the run, the same for all its workers."""
    return os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())


def _announce(programs: str, config: pytest.Config | None) -> None:
    """Print what the run waits for to the terminal, past pytest's capture."""
    capture = config.pluginmanager.getplugin("capturemanager") if config is not None else None
    if isinstance(capture, CaptureManager):
        with capture.global_and_fixture_disabled():
            sys.stderr.write(f"\ntoolcrib: waiting for the installation of {programs} (.tools/{programs}.log)\n")
            sys.stderr.flush()


def _is_installed(programs: str) -> bool:
    locked = ROOT / "requirements"
    locked = locked / f"{programs}.txt" if (locked / f"{programs}.txt").exists() else locked / programs / LOCK
    marker = ROOT / ".tools" / programs / "installed.lock"
    return marker.exists() and marker.read_bytes() == locked.read_bytes()


def chromium(config: pytest.Config | None = None) -> str:
    """Return a Chromium of this machine; installs one on Debian as root. Otherwise skips visibly, or fails in CI.

    An installation that failed is not tried again in the same run.

    """
    found = _browser()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        tools = ROOT / ".tools"
        tools.mkdir(exist_ok=True)
        with (tools / "chromium.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _browser() is None and _failed_before(tools / "chromium.failed") is None:
                _announce("chromium", config)
                _install_chromium()
        found = _browser()
    if found is None and "CI" not in os.environ:
        pytest.skip("There is no Chromium here.")
    assert found is not None, "There is no Chromium here, and none could be installed: see .tools/chromium.log"
    return found


def _install_chromium() -> None:
    bounds = ("-o", "Acquire::http::Timeout=60", "-o", "Acquire::https::Timeout=60", "-o", "Acquire::Retries=1")
    with (ROOT / ".tools" / "chromium.log").open("w") as log, suppress(subprocess.TimeoutExpired):
        for words in (("update",), ("install", "--yes", "--no-install-recommends", "chromium")):
            command = ["apt-get", "--quiet", *bounds, *words]
            subprocess.run(command, check=False, stdout=log, stderr=log, stdin=subprocess.DEVNULL, timeout=600)
    if _browser() is None:
        note = ROOT / ".tools" / "chromium.failed"
        note.write_text(f"{_run()}\nChromium could not be installed.\n", encoding="utf-8")


def _browser() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
