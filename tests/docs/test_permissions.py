"""The commands of docs/permissions.md, run in their order as a reader would; the rules it shows can be used."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from toolcrib.policy.patterns import Names
from toolcrib.policy.reading import read_rules_file

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "permissions.md").read_text(encoding="utf-8")


def test_every_command_of_the_page_works_in_its_order(tmp_path: Path) -> None:
    path = os.pathsep.join((str(Path(sys.executable).parent), "/usr/bin", "/bin"))
    environment = {"HOME": str(tmp_path), "TOOLCRIB_HOME": str(tmp_path / "crib"), "PATH": path}
    commands: list[str] = re.findall(r"^toolcrib .*$", PAGE, re.MULTILINE)
    assert len(commands) >= 15
    for line in commands:
        done = subprocess.run(
            shlex.split(line), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
    assert (tmp_path / "records.jsonl").read_bytes().count(b"\n") > 0


def test_the_rules_of_the_page_are_rules() -> None:
    [shown] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    read = read_rules_file(shown, "toolcrib.toml", "user", Names())
    assert (len(read.rules), read.problems) == (2, ())
