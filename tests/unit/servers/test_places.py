"""Where each client keeps its files, on each system, with and without variables."""

from pathlib import Path

import pytest

from toolcrib.servers import places
from toolcrib.servers.places import TABLE, Machine, all_places, project_directories
from toolcrib.servers.readers.apps import CLIENTS, FORMATS

HOME, CRIB = Path("/home/me"), Path("/home/me/.crib")


def files(platform: str, environment: dict[str, str] | None = None) -> set[tuple[str, str, str]]:
    """Return client, scope and path of every place of a user with one project directory."""
    around = Machine(HOME, CRIB, environment or {}, (Path("/p"),), Path("/p"), platform)
    return {(place.dialect.client, place.scope, str(place.file)) for place in all_places(around).files}


@pytest.mark.parametrize(
    ("platform", "client", "scope", "path"),
    [
        ("linux", "toolcrib", "user", "/home/me/.crib/mcp.json"),
        ("linux", "claude-code", "user", "/home/me/.claude.json"),
        ("linux", "claude-code", "project", "/p/.mcp.json"),
        ("linux", "claude-code", "managed", "/etc/claude-code/managed-mcp.json"),
        ("darwin", "claude-code", "managed", "/Library/Application Support/ClaudeCode/managed-mcp.json"),
        ("linux", "claude-desktop", "user", "/home/me/.config/Claude/claude_desktop_config.json"),
        ("darwin", "claude-desktop", "user", "/home/me/Library/Application Support/Claude/claude_desktop_config.json"),
        ("win32", "claude-desktop", "user", "/home/me/AppData/Roaming/Claude/claude_desktop_config.json"),
        ("linux", "vscode", "user", "/home/me/.config/Code/User/mcp.json"),
        ("darwin", "zed", "user", "/home/me/.config/zed/settings.json"),
        ("win32", "zed", "user", "/home/me/AppData/Roaming/Zed/settings.json"),
        ("linux", "codex", "user", "/home/me/.codex/config.toml"),
        ("linux", "goose", "user", "/home/me/.config/goose/config.yaml"),
        ("linux", "oh-my-pi", "user", "/home/me/.omp/agent/mcp.json"),
        ("linux", "mcp-json", "project", "/p/mcp.json"),
    ],
)
def test_file_of_a_client_is_in_the_place_for_the_system(platform: str, client: str, scope: str, path: str) -> None:
    """A sample of the table."""
    assert (client, scope, path) in files(platform)


@pytest.mark.parametrize(
    ("variable", "client", "path"),
    [
        ("CODEX_HOME", "codex", "/x/config.toml"),
        ("CLAUDE_CONFIG_DIR", "claude-code", "/x/.claude.json"),
        ("COPILOT_HOME", "copilot-cli", "/x/mcp-config.json"),
        ("XDG_CONFIG_HOME", "amp", "/x/amp/settings.json"),
        ("OPENCODE_CONFIG", "opencode", "/x"),
        ("GOOSE_PATH_ROOT", "goose", "/x/config/config.yaml"),
    ],
)
def test_variable_moves_a_file_only_to_an_absolute_path(variable: str, client: str, path: str) -> None:
    """A relative path could point into any project."""
    assert (client, "user", path) in files("linux", {variable: "/x"})
    assert files("linux", {variable: "x"}) == files("linux")


def test_every_client_has_a_place_and_every_place_a_format() -> None:
    """A new client needs a row in both tables."""
    assert {row.format for row in TABLE} <= set(FORMATS)
    assert set(CLIENTS) == {FORMATS[row.format].client for row in TABLE}


def test_users_own_file_is_not_also_a_project_file(tmp_path: Path) -> None:
    """Even if the home is a repository."""
    (tmp_path / ".git").mkdir()
    directories, project = project_directories(tmp_path)
    around = Machine(tmp_path, tmp_path / ".crib", {}, directories, project)
    places = [place for place in all_places(around).files if place.file == tmp_path / ".cursor" / "mcp.json"]
    assert [place.scope for place in places] == ["user"]


def test_nested_repository_or_worktree_is_its_own_project(tmp_path: Path) -> None:
    """The nearest root counts, by its real path."""
    inner = tmp_path / "outer" / "inner"
    (inner / "deep").mkdir(parents=True)
    (tmp_path / "outer" / ".git").mkdir()
    (inner / ".git").write_text("gitdir: elsewhere", "utf-8")
    directories, project = project_directories(inner / "deep")
    assert directories == (inner / "deep", inner)
    assert project == inner.resolve()


def test_all_files_of_a_pattern_are_read_up_to_a_reported_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ".continue" / "mcpServers"
    folder.mkdir(parents=True)
    for number in range(300):
        (folder / f"{number}.yaml").touch()
    found = all_places(Machine(tmp_path, tmp_path / ".crib", {}))
    assert sum(place.file.parent == folder for place in found.files) == 300
    assert found.problems == ()
    monkeypatch.setattr(places, "MAX_MATCHES", 100)
    limited = all_places(Machine(tmp_path, tmp_path / ".crib", {}))
    assert sum(place.file.parent == folder for place in limited.files) == 100
    assert [(problem.code, problem.file) for problem in limited.problems] == [("config.too_many", str(folder))]
    assert "300 files match" in limited.problems[0].message
