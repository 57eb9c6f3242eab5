"""The wheel contains every file of the source, and the program runs from it."""

import subprocess
import sys
from pathlib import Path

from e2e.shell import Shell
from wheel import ROOT


def test_wheel_contains_every_file_of_the_source(installed_wheel: Path) -> None:
    tracked = subprocess.run(["git", "ls-files", "src/toolcrib"], cwd=ROOT, capture_output=True, text=True, check=True)
    missing = [name for name in tracked.stdout.split() if not (installed_wheel / name.removeprefix("src/")).exists()]
    assert missing == []


def test_serve_runs_from_the_wheel(installed_wheel: Path, tmp_path: Path) -> None:
    shell = Shell.at(tmp_path).having(PYTHONPATH=str(installed_wheel))
    found = subprocess.run(
        [sys.executable, "-c", "import toolcrib; print(toolcrib.__file__)"],
        env=shell.variables, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(found.stdout.strip()).is_relative_to(installed_wheel)
    with shell.serving("--no-open") as crib:
        said = subprocess.run(shell.command("tools", "list", "--json"), env=shell.variables, capture_output=True)
        assert said.returncode == 0 and b"greet" in said.stdout, said.stderr
        assert crib.url
