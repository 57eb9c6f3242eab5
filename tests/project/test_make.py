"""What `make` says where it cannot work: one sentence, no traceback. Nothing is downloaded here."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from long_tests import takes_long

ROOT = Path(__file__).resolve().parents[2]
UNREACHABLE = "http://127.0.0.1:9/simple"  # the discard port: nothing listens there


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files that installing needs, and nothing installed."""
    for name in ("Makefile", "pyproject.toml", "requirements", "scripts"):
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copyfile
        copy(source, tmp_path / name)
    return tmp_path


def make_run(clone: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_", "MAKE"))}
    return subprocess.run(
        ["make", "-C", clone, "--no-print-directory", "run", *arguments],
        env={**kept, "PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1", **variables},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def a_python(folder: Path, version: str) -> Path:
    """A program that claims to be a Python of this version."""
    path = folder / "python-old"
    path.write_text(f'#!/bin/sh\ncase "$2" in *print*) echo {version} ;; *) exit 1 ;; esac\n', encoding="utf-8")
    path.chmod(0o755)
    return path


def test_a_python_that_is_too_old_is_named_with_its_version_and_what_is_needed(clone: Path, tmp_path: Path) -> None:
    old = a_python(tmp_path, "3.9.18")
    done = make_run(clone, f"PYTHON={old}")
    assert done.returncode != 0
    assert f"Python 3.11 or newer is needed (found: {old} is 3.9.18)." in done.stderr
    assert "Traceback" not in done.stderr
    assert not (clone / ".tools").exists()


def test_no_python_at_all_is_said(clone: Path) -> None:
    done = make_run(clone, "PYTHON=no-such-python")
    assert done.returncode != 0
    assert "Python 3.11 or newer is needed (found: no Python at all)." in done.stderr


@takes_long
def test_an_index_that_does_not_answer_is_one_sentence_and_the_next_try_starts_over(clone: Path) -> None:
    for _ in range(2):
        done = make_run(clone, PIP_CONFIG_FILE=os.devnull, PIP_INDEX_URL=UNREACHABLE)
        assert done.returncode != 0
        assert "uv could not be downloaded: is there a network, and does pip work?" in done.stderr
        assert "Traceback" not in done.stderr
        assert not (clone / ".tools" / "installed.txt").exists()
