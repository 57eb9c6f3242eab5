"""The commands of docs/agents.md, run in their order as a reader would, in an empty HOME."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from toolcrib.model.json import JsonObject

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")
SUB_AGENT = "---\nname: tester-x\ndescription: Tests.\n---\nYou test.\n"
SKILL = "---\nname: pdf\ndescription: Reads PDFs.\n---\nRead the file.\n"
FOREIGN: JsonObject = {
    "id": "zed",
    "name": "Zed",
    "description": "",
    "systemPrompt": "P",
    "skills": [],
    "brainEntries": [],
}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_every_command_of_the_page_works_in_its_order(tmp_path: Path) -> None:
    write(tmp_path / ".claude" / "agents" / "tester-x.md", SUB_AGENT)
    write(tmp_path / "skills" / "pdf" / "SKILL.md", SKILL)
    write(tmp_path / "agents.json", json.dumps([FOREIGN]))
    path = os.pathsep.join((str(Path(sys.executable).parent), "/usr/bin", "/bin"))
    environment = {"HOME": str(tmp_path), "TOOLCRIB_HOME": str(tmp_path / "crib"), "PATH": path}
    commands: list[str] = re.findall(r"^toolcrib .*$", PAGE, re.MULTILINE)
    assert len(commands) >= 9
    for line in commands:
        words = [word.replace("~", str(tmp_path)) for word in shlex.split(line, comments=True)]
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
    assert "Be concise." in (tmp_path / ".claude" / "agents" / "code-wizard.md").read_text(encoding="utf-8")
