"""The example plugin, built as a wheel and installed, through the commands of docs/plugins.md."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from integration.plugins.packages import install_example

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "plugins.md").read_text(encoding="utf-8")


def test_the_commands_of_the_page_work_in_their_order_with_the_example_installed(tmp_path: Path) -> None:
    target = install_example(tmp_path)
    path = os.pathsep.join((str(Path(sys.executable).parent), "/usr/bin", "/bin"))
    environment = {
        "HOME": str(tmp_path), "TOOLCRIB_HOME": str(tmp_path / "crib"), "PATH": path, "PYTHONPATH": str(target),
    }  # fmt: skip
    printed: dict[str, str] = {}
    commands: list[str] = re.findall(r"^toolcrib .*$", PAGE, re.MULTILINE)
    assert len(commands) >= 6
    for line in commands:
        done = subprocess.run(
            shlex.split(line, comments=True), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        printed[line.partition("#")[0].strip()] = done.stdout
    (shown,) = json.loads(printed["toolcrib plugins list --json"])
    assert (shown["name"], shown["state"], shown["capabilities"]) == ("words", "not_granted", ["filesystem"])
    assert "words is loaded with 2 tools" in printed["toolcrib plugins grant words"]
    (called,) = [text for line, text in printed.items() if line.startswith("toolcrib tools call")]
    assert '"words":3' in called
