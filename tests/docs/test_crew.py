"""docs/crew.md names the crew tools with their marks, and its commands work."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from toolcrib.builtin.crew import crew_server

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "crew.md").read_text(encoding="utf-8")
LISTED: dict[str, str] = dict(re.findall(r"`(crib_\w+)`(?: \(([ps, ]+)\))?[,| ]", PAGE.split("## ")[0]))


def test_every_tool_that_needs_nothing_else_is_in_the_table_with_its_marks() -> None:
    definitions = crew_server({}).definitions.items()
    marks = {name: definition.marks for name, definition in definitions if not definition.requires}
    assert set(marks) <= set(LISTED)
    for name, mark in marks.items():
        assert ("p" in LISTED[name], "s" in LISTED[name]) == (mark.privileged, mark.scheduler_blocked), name


def test_every_command_of_the_page_works_in_its_order(tmp_path: Path) -> None:
    path = os.pathsep.join((str(Path(sys.executable).parent), "/usr/bin", "/bin"))
    environment = {"HOME": str(tmp_path), "TOOLCRIB_HOME": str(tmp_path / "crib"), "PATH": path}
    commands: list[str] = re.findall(r"^toolcrib .*$", PAGE, re.MULTILINE)
    assert len(commands) == 6
    said = ""
    for line in commands:
        done = subprocess.run(
            shlex.split(line), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        said += done.stdout
    assert "deploy" in said
    assert '"complete":true' in said
