"""Runs the commands of the pages in docs, beside a crib that runs in a home of the reader's own."""

import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from e2e.shell import Shell

PAGES = Path(__file__).resolve().parents[2] / "docs"


def page(name: str) -> str:
    """Return the text of a page."""
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


def commands(text: str) -> list[str]:
    """Return the command lines of a page, in order."""
    return re.findall(r"^ *(toolcrib .*)$", text, re.MULTILINE)


def reader(folder: Path, **variables: str) -> Shell:
    """Return a shell with an empty HOME and the program on the path."""
    path = os.pathsep.join((str(Path(sys.executable).parent), "/usr/bin", "/bin"))
    home = {"HOME": str(folder), "TOOLCRIB_HOME": str(folder / "crib"), "TOOLCRIB_PORT": "0"}
    return Shell(folder, {**home, "PATH": path, **variables})


def follow(shell: Shell, lines: Sequence[str]) -> list[str]:
    """Run command lines in order, which must succeed, and return their outputs."""
    printed: list[str] = []
    for line in lines:
        words = [word.replace("~", str(shell.folder)) for word in shlex.split(line, comments=True)]
        done = shell.run(*words[1:])
        assert done.returncode == 0, f"{line}: {done.stderr}"
        printed.append(done.stdout)
    return printed
