"""A file that can no longer be read leaves what it last said in force."""

import json
from pathlib import Path

from toolcrib.model.servers import Discovery
from toolcrib.servers.discover import discover
from toolcrib.servers.project_view import LastGood


def servers(*names: str) -> str:
    """A file with these servers."""
    return json.dumps({"mcpServers": {name: {"command": name} for name in names}})


def _discover(memory: LastGood, home: Path, cwd: str = "cwd") -> Discovery:
    return discover(
        {}, home / cwd, home=home, crib=home / ".crib", trusted=lambda _: False, platform="linux", read=memory.read
    )


def test_a_file_that_broke_leaves_the_last_good_state_in_force_with_a_problem(tmp_path: Path) -> None:
    """Until it is whole again, or gone."""
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


def test_a_broken_file_of_several_projects_leaves_each_its_own_servers(tmp_path: Path) -> None:
    """Whichever project was looked at last."""
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


def test_a_file_that_was_emptied_leaves_the_last_good_state_in_force_with_a_problem(tmp_path: Path) -> None:
    """In every format: whoever writes a file anew may cut it to nothing first."""
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
