"""Errors of the installer of third-party programs, and its idempotence. Downloads nothing."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Copy the files that the installation needs, and create a PATH with little more than a shell."""
    for name in ("requirements", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "dirname", "cmp", "mkdir", "cp"):
        found = shutil.which(name)
        assert found, name
        (programs / name).symlink_to(found)
    (tmp_path / ".tools").mkdir()
    return tmp_path


def install(clone: Path, name: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["sh", clone / "scripts" / "programs.sh", name],
        env={"PATH": str(clone / "programs")}, capture_output=True, text=True, timeout=30,
    )  # fmt: skip


def test_missing_npm_is_reported_in_one_sentence(clone: Path) -> None:
    done = install(clone, "node")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "toolcrib: npm is not installed."
    assert not (clone / ".tools" / "node" / "installed.lock").exists()


def test_current_installation_is_not_repeated(clone: Path) -> None:
    (clone / ".tools" / "node").mkdir()
    locked = clone / "requirements" / "node" / "package-lock.json"
    shutil.copyfile(locked, clone / ".tools" / "node" / "installed.lock")
    done = install(clone, "node")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_failed_npm_is_reported_with_its_log_file(clone: Path) -> None:
    npm = clone / "programs" / "npm"
    npm.write_text("#!/bin/sh\necho no network\nexit 7\n", encoding="utf-8")
    npm.chmod(0o755)
    done = install(clone, "node")
    assert done.returncode == 1
    assert "could not be installed. Details: .tools/node.log" in done.stderr
    assert (clone / ".tools" / "node.log").read_text(encoding="utf-8") == "no network\n"
    assert not (clone / ".tools" / "node" / "installed.lock").exists()
