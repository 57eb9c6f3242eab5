"""The test run itself: an unreachable registry, a busy machine, an interrupted run."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

import deadlines
import programs
from process_cleanup import end_database_with_tests

TESTS = Path(__file__).parents[1]


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + deadlines.stretched(seconds)
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def tree(folder: Path, npm: str) -> Path:
    """Create a project with one set of programs and a fake npm."""
    for name in ("scripts", "requirements/node", ".tools", "bin"):
        (folder / name).mkdir(parents=True)
    (folder / "scripts/programs.sh").write_bytes((TESTS.parent / "scripts/programs.sh").read_bytes())
    for name in ("package.json", "package-lock.json"):
        (folder / "requirements/node" / name).write_text("{}", encoding="utf-8")
    (folder / "bin/npm").write_text(f"#!/bin/sh\n{npm}\n", encoding="utf-8")
    (folder / "bin/npm").chmod(0o755)
    return folder


def test_installation_waits_for_a_registry_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tree(tmp_path, 'echo "$@" > "$(dirname "$0")/said"')
    monkeypatch.setattr(programs, "ROOT", project)
    monkeypatch.setenv("PATH", f"{project / 'bin'}:{os.environ['PATH']}")
    programs.installed("node")
    said = (project / "bin/said").read_text(encoding="utf-8")
    assert "--fetch-timeout=60000" in said
    assert "--fetch-retries=1" in said


def test_failed_installation_is_tried_once_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tree(tmp_path, 'echo tried >> "$(dirname "$0")/tries"; exit 1')
    monkeypatch.setattr(programs, "ROOT", project)
    monkeypatch.setenv("PATH", f"{project / 'bin'}:{os.environ['PATH']}")
    monkeypatch.delenv("CI", raising=False)
    for _ in range(3):
        with pytest.raises(pytest.skip.Exception, match="could not be installed"):
            programs.installed("node")
    assert (project / "bin/tries").read_text(encoding="utf-8") == "tried\n"
    monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", "another run")
    with pytest.raises(pytest.skip.Exception):
        programs.installed("node")
    assert (project / "bin/tries").read_text(encoding="utf-8") == "tried\ntried\n"


def test_chromium_is_fetched_within_bounds_and_once_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tree(tmp_path, "exit 1")
    fetch = project / "bin/apt-get"
    fetch.write_text('#!/bin/sh\necho "$@" >> "$(dirname "$0")/tries"; exit 1\n', encoding="utf-8")
    fetch.chmod(0o755)
    for tool in ("sh", "dirname"):
        (project / "bin" / tool).symlink_to(str(shutil.which(tool)))
    monkeypatch.setattr(programs, "ROOT", project)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(project / "bin"))
    monkeypatch.delenv("CI", raising=False)
    for _ in range(3):
        with pytest.raises(pytest.skip.Exception, match="no Chromium"):
            programs.chromium()
    tries = (project / "bin/tries").read_text(encoding="utf-8").splitlines()
    assert [line.split()[7] for line in tries] == ["update", "install"]
    assert all("Timeout=60" in line and "Retries=1" in line for line in tries)


def test_missing_programs_are_announced_past_the_capture(tmp_path: Path) -> None:
    project = tree(tmp_path / "project", "exit 1")
    test = tmp_path / "test_it.py"
    test.write_text(
        "import pathlib, programs\n"
        f"programs.ROOT = pathlib.Path({str(project)!r})\n"
        "def test_it(pytestconfig):\n    programs.installed('node', pytestconfig)\n",
        encoding="utf-8",
    )
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "PATH": f"{project / 'bin'}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, str(test)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "waiting for the installation of node" in done.stderr


def test_deadlines_of_tests_stretch_with_the_load_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.5, 0, 0))
    assert deadlines.stretched(10) == 10
    monkeypatch.setattr(os, "getloadavg", lambda: (14.0, 0, 0))
    assert deadlines.stretched(10) == pytest.approx(105)
    given: list[float | None] = []

    def note(delay: float | None, shield: bool) -> None:
        given.append(delay)

    monkeypatch.setattr(deadlines, "_fail_after", note)
    deadlines.fail_after(10)
    deadlines.fail_after(0.05)
    exec("deadlines.fail_after(10)", {"deadlines": deadlines, "__file__": "/elsewhere/program.py"})
    assert given == [pytest.approx(105), 0.05, 10]


def test_database_server_ends_with_a_killed_run(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    server = subprocess.Popen(["sleep", "600"])
    (data / "postmaster.pid").write_text(f"{server.pid}\n", encoding="utf-8")
    code = (
        "import pathlib, process_cleanup, time\n"
        f"process_cleanup.end_database_with_tests(pathlib.Path({str(data)!r}))\ntime.sleep(600)"
    )
    run = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(TESTS)})
    try:
        until(lambda: len(psutil.Process(run.pid).children()) == 1)
        run.kill()
        run.wait()
        assert server.wait(timeout=60) == -signal.SIGINT
        until(lambda: not data.exists())
    finally:
        run.kill()
        server.kill()


def test_watcher_of_a_database_that_ended_goes_too(tmp_path: Path) -> None:
    watcher = end_database_with_tests(tmp_path / "gone")
    watcher.communicate(timeout=60)
    assert watcher.returncode == 0


def test_terminated_run_tears_down_what_it_started(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import process_cleanup\nprocess_cleanup.end_on_sigterm()\n", encoding="utf-8"
    )
    (tmp_path / "test_it.py").write_text(
        "import pathlib, pytest, time\nHERE = pathlib.Path(__file__).parent\n"
        "@pytest.fixture\ndef started():\n    (HERE / 'begun').touch()\n    yield\n    (HERE / 'ended').touch()\n"
        "def test_it(started):\n    time.sleep(600)\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    run = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
    try:
        until((tmp_path / "begun").exists)
        run.terminate()
        run.wait(timeout=60)
    finally:
        run.kill()
    assert (tmp_path / "ended").exists()
