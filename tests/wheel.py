"""The wheel of this project, built once in each process that runs tests and unpacked into a folder."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INPUTS = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")


def unpack_wheel(folder: Path) -> Path:
    """Build the wheel and unpack it; return the folder to put on `PYTHONPATH`."""
    source, wheels, target = folder / "source", folder / "wheels", folder / "target"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", source / "src", ignore=ignored)
    for name in INPUTS:
        shutil.copy(ROOT / name, source / name)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    environment = {"PATH": os.defpath, "HOME": str(folder)}
    subprocess.run(build, cwd=source, env=environment, check=True, capture_output=True, timeout=120)
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(target)
    return target
