"""docs/doctor.md lists every check, and its commands work."""

import re
import shlex
from pathlib import Path

from e2e.shell import Shell
from toolcrib.doctor.crib_checks import ASKED
from toolcrib.doctor.examine import CHECKS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "doctor.md").read_text(encoding="utf-8")


def test_table_lists_every_check() -> None:
    named = re.findall(r"^\| `(\w+)` \|", PAGE[PAGE.index("| check |") :], re.MULTILINE)
    assert set(named) == {*CHECKS, *ASKED, "trust"}


def test_commands_of_the_page_work(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path)
    for directory in (shell.home, shell.home / "tools"):
        directory.chmod(0o700)
    commands: list[str] = re.findall(r"^toolcrib .*$", PAGE, re.MULTILINE)
    assert len(commands) == 3
    for line in commands:
        done = shell.run(*shlex.split(line)[1:])
        assert done.returncode == 0, f"{line}: {done.stdout}"
