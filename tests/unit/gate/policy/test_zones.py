"""The zone of a path: the home, files that decide what runs, the project, or outside."""

from pathlib import PurePosixPath

import pytest

from toolcrib.gate.policy.zones import TouchedPath, is_decisive, zone_of
from toolcrib.servers.places import TABLE

PUBLISHED = {"server.json", "manifest.json"}
"""Descriptions of a server for publication; they start nothing."""


@pytest.mark.parametrize(
    "path",
    [
        ".git/config", ".git/hooks/pre-commit", ".git", "sub/.git/config", ".GIT/config", ".g\u200cit/config",
        "\uff0egit/config", ".git./config", ".claude/settings.json", ".vscode/tasks.json", ".cursor/mcp.json",
        ".mcp.json",
        ".MCP.json",
        ".toolcrib/mcp.json", ".github/workflows/ci.yml", ".GitHub/Workflows/ci.yml", ".gitlab-ci.yml",
        ".circleci/config.yml", "Jenkinsfile", ".envrc", ".husky/pre-commit", ".pre-commit-config.yaml", ".bashrc",
        ".zshenv", ".profile", ".config/fish/config.fish", ".ssh/authorized_keys", ".ssh/config", ".gitconfig",
        ".config/git/config", "Library/LaunchAgents/a.plist", ".config/systemd/user/a.service",
        ".config/autostart/a.desktop", ".idea/workspace.xml", ".devcontainer/devcontainer.json", ".gitmodules",
        "bare/HEAD",
        "site/evil.pth", "a.code-workspace", ".npmrc", ".local/bin/ls",
    ],
)  # fmt: skip
def test_file_that_decides_what_runs_is_decisive(path: str) -> None:
    assert is_decisive(f"/p/{path}")
    assert zone_of((TouchedPath(f"/p/{path}"),), ("/p",)) == "decisive"


@pytest.mark.parametrize(
    "path",
    [
        "a.py",
        "Makefile",
        "package.json",
        "README.md",
        ".github/CODEOWNERS",
        ".gitignore",
        "git/config",
        ".env",
        "claude/x",
    ],
)
def test_ordinary_file_of_a_project_is_in_its_project(path: str) -> None:
    assert zone_of((TouchedPath(f"/p/{path}"),), ("/p",)) == "project"


def test_each_file_in_which_apps_look_for_servers_is_decisive() -> None:
    files = {row.path for row in TABLE if row.scope == "project"} - PUBLISHED
    assert {file for file in files if not is_decisive(f"/p/{file.replace('*', 'x')}")} == set()
    own = {row.path.replace("*", "x") for row in TABLE if row.scope == "user" and row.path.startswith("~/")}
    assert {file for file in own if not is_decisive(str(PurePosixPath("/u", file[2:])))} == set()


def test_working_tree_in_the_folder_of_an_app_is_an_ordinary_project() -> None:
    assert not is_decisive("/r/.claude/worktrees/x/src/a.py")
    assert is_decisive("/r/.claude/worktrees/x/.claude/settings.json")
    assert is_decisive("/r/.claude/settings.json")


def test_worktree_is_judged_from_its_root() -> None:
    assert not is_decisive("/u/.toolcrib/work/1/a.py", "/u/.toolcrib/work/1")
    assert is_decisive("/u/.toolcrib/work/1/.git", "/u/.toolcrib/work/1")


def test_strictest_zone_of_all_paths_counts() -> None:
    inside, outside = TouchedPath("/p/a"), TouchedPath("/q")
    assert zone_of((inside, outside), ("/p",)) == "outside"
    assert zone_of((inside, TouchedPath("/p/.git/x")), ("/p",)) == "decisive"
    assert zone_of((inside, TouchedPath("/p/h", "inside")), ("/p",)) == "home"
    assert zone_of((inside, TouchedPath(None)), ("/p",)) == "unknown"
    assert zone_of((), ("/p",)) == "outside"
    assert zone_of(None, ("/p",)) == "outside"
    assert zone_of((inside,), (None, None)) == "outside"
