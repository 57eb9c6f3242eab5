"""docs/connect.md: its table lists all apps, and its commands work in order."""

import re
import shlex
from pathlib import Path

from e2e.shell import Shell
from scripts import reference
from toolcrib.servers.apps.connectable import CONNECTABLE
from toolcrib.servers.export import takes_http

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "connect.md").read_text(encoding="utf-8")


def test_table_of_apps_is_up_to_date() -> None:
    assert reference.connect_page(PAGE) == PAGE, "run `make docs`"


def test_table_lists_every_app_and_its_transport() -> None:
    rows = re.findall(r"^\| \[([^]]+)\]\(\S+\) \| `([\w-]+)` \|.*\| (HTTP|stdio|) \| (yes|) \|$", PAGE, re.MULTILINE)
    connected = {(title, name, over) for title, name, over, _ in rows if over}
    assert connected == {(row.title, row.name, "HTTP" if takes_http(row.name) else "stdio") for row in CONNECTABLE}
    assert len(rows) >= 50


def test_commands_of_the_page_work_in_order(tmp_path: Path) -> None:
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
