"""A file that became unreadable keeps its last good servers."""

import json
from pathlib import Path

from toolcrib.model.servers import Discovery
from toolcrib.servers.discover import discover
from toolcrib.servers.project_view import LastGood


def servers(*names: str) -> str:
    """Return the text of a file with these servers."""
    return json.dumps({"mcpServers": {name: {"command": name} for name in names}})


def _discover(memory: LastGood, home: Path, cwd: str = "cwd") -> Discovery:
    return discover(
        {}, home / cwd, home=home, crib=home / ".crib", trusted=lambda _: False, platform="linux", read=memory.read
    )


def test_broken_file_keeps_its_last_good_servers_and_is_a_problem(tmp_path: Path) -> None:
    """The servers remain until the file is valid again or removed."""
    (tmp_path / "cwd").mkdir()
    file = tmp_path / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text(servers("a"), "utf-8")
    memory = LastGood()
    assert [entry.name for entry in _discover(memory, tmp_path).servers] == ["a"]
    file.write_text('{"mcpServers": {', "utf-8")
    broken = _discover(memory, tmp_path)
    assert [entry.name for entry in broken.servers] == ["a"]
    assert [problem.code for problem in broken.problems] == ["config.syntax"]
    file.unlink()
    file.mkdir()
    assert [entry.name for entry in _discover(memory, tmp_path).servers] == ["a"]
    file.rmdir()
    assert _discover(memory, tmp_path).servers == ()
    file.write_text('{"mcpServers": {', "utf-8")
    assert _discover(memory, tmp_path).servers == ()


def test_broken_file_of_several_projects_keeps_the_servers_of_each(tmp_path: Path) -> None:
    """The order in which the projects were listed does not matter."""
    for name in ("one", "two"):
        (tmp_path / name / ".git").mkdir(parents=True)
    entries = {str(tmp_path / name): {"mcpServers": {name: {"command": name}}} for name in ("one", "two")}
    file = tmp_path / ".claude.json"
    file.write_text(json.dumps({"projects": entries}), "utf-8")
    memory = LastGood()
    before = [_discover(memory, tmp_path, name).servers for name in ("one", "two")]
    file.write_text("{", "utf-8")
    assert [_discover(memory, tmp_path, name).servers for name in ("one", "two")] == before
    assert [entry.name for listed in before for entry in listed] == ["one", "two"]


def test_emptied_file_keeps_its_last_good_servers_and_is_a_problem(tmp_path: Path) -> None:
    """A program that rewrites a file may truncate it first, in any format."""
    (tmp_path / "cwd").mkdir()
    files = {
        ".cursor/mcp.json": servers("a"),
        ".codex/config.toml": '[mcp_servers.b]\ncommand = "b"\n',
        ".config/goose/config.yaml": "extensions:\n  c:\n    type: stdio\n    cmd: c\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text, "utf-8")
    memory = LastGood()
    whole = _discover(memory, tmp_path)
    assert [entry.name for entry in whole.servers] == ["a", "b", "c"]
    for name in files:
        (tmp_path / name).write_bytes(b"")
    emptied = _discover(memory, tmp_path)
    assert emptied.servers == whole.servers
    assert [(problem.code, problem.file) for problem in emptied.problems] == [
        ("config.empty", str(tmp_path / name)) for name in files
    ]
    (tmp_path / ".codex/config.toml").write_text("# nothing here\n", "utf-8")
    assert [entry.name for entry in _discover(memory, tmp_path).servers] == ["a", "c"]
    assert _discover(LastGood(), tmp_path).servers == ()
