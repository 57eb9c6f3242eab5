"""The commands of docs/agents.md, run in order in an empty HOME."""

import json
from pathlib import Path

from docs.pages import commands, follow, page, reader
from toolcrib.model.json import JsonObject

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


def test_commands_of_the_page_work_in_order(tmp_path: Path) -> None:
    write(tmp_path / ".claude" / "agents" / "tester-x.md", SUB_AGENT)
    write(tmp_path / "skills" / "pdf" / "SKILL.md", SKILL)
    write(tmp_path / "agents.json", json.dumps([FOREIGN]))
    person = reader(tmp_path)
    lines = commands(page("agents"))
    assert len(lines) >= 9
    with person.serving():
        follow(person, lines)
    assert "Be concise." in (tmp_path / ".claude" / "agents" / "code-wizard.md").read_text(encoding="utf-8")
