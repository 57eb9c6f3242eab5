"""Errors of `make`: one sentence, no traceback. Downloads nothing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from long_tests import takes_long

ROOT = Path(__file__).resolve().parents[2]
UNREACHABLE = "http://127.0.0.1:9/simple"  # the discard port, where nothing listens


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Copy the files that the installation needs, without installing."""
    for name in ("Makefile", "pyproject.toml", "requirements", "scripts"):
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copyfile
        copy(source, tmp_path / name)
    return tmp_path


SYNC = """\
Resolved 3 packages in 1.19s
DEBUG Sending fresh GET request for: http://index/packages/c1/3d/tree_sitter_go-0.25.0-cp310-abi3-manylinux1_x86_64.whl
DEBUG Sending fresh GET request for: http://index/packages/c1/3d/claude_agent_sdk-0.2.182-py3-none-any.whl
Downloading claude-agent-sdk (154.3MiB)
DEBUG Sending fresh GET request for: http://index/packages/c1/3d/mako-1.3.0.tar.gz
Downloading mako (1.2MiB)
 Downloaded claude-agent-sdk
 Downloaded mako
Prepared 3 packages in 10.52s
"""


def make_run(clone: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_", "MAKE"))}
    return subprocess.run(
        ["make", "-C", clone, "--no-print-directory", "run", *arguments],
        env={**inherited, "PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1", **variables},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def fake_python(folder: Path, version: str) -> Path:
    """Create a program that claims to be this version of Python."""
    path = folder / "python-old"
    path.write_text(f'#!/bin/sh\ncase "$2" in *print*) echo {version} ;; *) exit 1 ;; esac\n', encoding="utf-8")
    path.chmod(0o755)
    return path


def test_too_old_python_is_reported_with_the_required_version(clone: Path, tmp_path: Path) -> None:
    old = fake_python(tmp_path, "3.9.18")
    done = make_run(clone, f"PYTHON={old}")
    assert done.returncode != 0
    assert f"Python 3.11 or newer is needed (found: {old} is 3.9.18)." in done.stderr
    assert "Traceback" not in done.stderr
    assert not (clone / ".tools").exists()


def test_missing_python_is_reported(clone: Path) -> None:
    done = make_run(clone, "PYTHON=no-such-python")
    assert done.returncode != 0
    assert "Python 3.11 or newer is needed (found: no Python at all)." in done.stderr


@takes_long
def test_unreachable_index_is_reported_and_the_next_run_starts_over(clone: Path) -> None:
    for _ in range(2):
        done = make_run(clone, PIP_CONFIG_FILE=os.devnull, PIP_INDEX_URL=UNREACHABLE)
        assert done.returncode != 0
        assert "uv could not be downloaded: is there a network, and does pip work?" in done.stderr
        assert "Traceback" not in done.stderr
        assert not (clone / ".tools" / "installed.txt").exists()


def test_installation_on_a_terminal_shows_the_current_package() -> None:
    reader, writer = os.openpty()
    progress = [sys.executable, ROOT / "scripts" / "install_progress.py", "5"]
    subprocess.run(progress, input=SYNC, text=True, stderr=writer, check=True, timeout=30)
    os.close(writer)
    assert os.read(reader, 10_000).decode().split("\r\x1b[K") == [
        "",
        "toolcrib: package 1 of 3: tree-sitter-go",
        "toolcrib: package 2 of 3: claude-agent-sdk",
        "toolcrib: package 2 of 3: claude-agent-sdk (154.3MiB)",
        "toolcrib: package 3 of 3: claude-agent-sdk (154.3MiB)",
        "toolcrib: package 3 of 3: claude-agent-sdk (154.3MiB)",
        "toolcrib: package 3 of 3: mako (1.2MiB)",
        "toolcrib: package 3 of 3: mako",
        "",
    ]


def test_installation_without_a_terminal_prints_each_large_package() -> None:
    progress = [sys.executable, ROOT / "scripts" / "install_progress.py", "5"]
    done = subprocess.run(progress, input=SYNC, text=True, capture_output=True, check=True, timeout=30)
    assert done.stderr == "toolcrib: downloading claude-agent-sdk (154.3MiB)\ntoolcrib: downloading mako (1.2MiB)\n"
    failed = subprocess.run(progress, input="error\nsync failed\n", text=True, capture_output=True, timeout=30)
    assert failed.returncode == 1
