"""docs/connect.md: its table has the tools there are, and its commands work in their order."""

import re
import shlex
from pathlib import Path

from e2e.shell import Shell
from toolcrib.servers.apps.connectable import CONNECTABLE
from toolcrib.servers.export import takes_http

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "connect.md").read_text(encoding="utf-8")


def test_the_table_has_the_tools_by_their_names_and_how_they_are_reached() -> None:
    rows = re.findall(r"^\| ([\w .]+) \| `([\w-]+)`[^|]* \| (HTTP|stdio) \|$", PAGE, re.MULTILINE)
    assert rows == [(row.title, row.name, "HTTP" if takes_http(row.name) else "stdio") for row in CONNECTABLE[:12]]
    others = " ".join(PAGE.split())
    assert all(row.title in others for row in CONNECTABLE[12:])


def test_every_command_of_the_page_works_in_its_order(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path)
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    cursor = tmp_path / ".cursor" / "mcp.json"
    cursor.parent.mkdir()
    before = '{\n  // mine\n  "mcpServers": {"clock": {"command": "clock-server"}}\n}\n'
    cursor.write_text(before)
    commands: list[str] = re.findall(r"^toolcrib .*$", PAGE, re.MULTILINE)
    assert len(commands) == 13
    with shell.serving():
        inside = Shell(project, shell.variables)
        for line in commands:
            done = inside.run(*shlex.split(line)[1:])
            assert done.returncode == 0, f"{line}: {done.stderr}"
    assert "toolcrib" not in cursor.read_text()
