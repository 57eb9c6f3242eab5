"""Packages with tools, installed into a folder: from a wheel, or written by hand."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[4] / "examples" / "plugin"
TOOLS = '''
"""Tools to try."""

from pathlib import Path

from toolcrib import tool

Path(__file__).with_name("imported").touch()


@tool(read_only=True)
def greet(name: str) -> str:
    """Greet a person."""
    return f"Hello, {name}."


@tool(timeout=5)
def slow() -> str:
    """Have an own timeout."""
    return "done"
'''


def install_example(place: Path) -> Path:
    """Build the wheel of the example, unpack it, and return the folder to put on the path."""
    source, wheels, target = place / "source", place / "wheels", place / "target"
    shutil.copytree(EXAMPLE, source)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    environment = {"PATH": os.defpath, "HOME": str(place)}
    subprocess.run(build, cwd=source, env=environment, check=True, capture_output=True, timeout=120)
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(target)
    return target


def install(
    target: Path,
    *,
    name: str = "hello",
    version: str = "1.0",
    manifest: str | None = None,
    tools: str = TOOLS,
    entry: str | None = None,
) -> Path:
    """Write a package `demo_<name>` with the server `<name>` and return its folder."""
    package = target / f"demo_{name}"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "tools.py").write_text(tools, encoding="utf-8")
    default = f'name = "{name}"\nversion = "{version}"\ndescription = "Says hello."\ncapabilities = ["network"]\n'
    (package / "toolcrib-plugin.toml").write_text(default if manifest is None else manifest, encoding="utf-8")
    for old in target.glob(f"demo_{name}-*.dist-info"):
        shutil.rmtree(old)
    info = target / f"demo_{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: demo-{name}\nVersion: {version}\n", encoding="utf-8")
    (info / "INSTALLER").write_text("test\n", encoding="utf-8")
    points = f"[toolcrib.tools]\n{name} = {entry or f'demo_{name}.tools'}\n"
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    return package
