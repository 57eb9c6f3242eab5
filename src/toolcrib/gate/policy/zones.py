"""Classifies the paths that a call touches: the crib's home, files that decide what runs, the project, everything else.

The home is closed to agents in every mode. Files that decide what runs are executed or obeyed without further
confirmation as soon as a person opens, clones, commits, pushes or logs in. Build files such as `Makefile` are not among
them, because running those is a command of its own. Names are compared without case and after Unicode normalisation,
since file systems differ in both.

Pure: `gate.touched_paths` reads the file system and passes its findings as `TouchedPath`. Invariant: a path that cannot
be judged is never `project`.
"""

import itertools
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, Literal

from toolcrib.model.text import normalized

Zone = Literal["project", "decisive", "outside", "unknown", "home"]
"""`unknown`: the call does not specify which file it touches."""
Closed = Literal["inside", "around", "indirect"]
"""Why a path is closed: it is in the home, contains it, or leads through a process (`/proc/PID/cwd`)."""
_STRICTEST_FIRST: Final[tuple[Zone, ...]] = ("home", "unknown", "outside", "decisive", "project")

DECISIVE_DIRECTORIES: Final = frozenset({
    ".git", ".hg", ".svn", ".jj", ".husky", ".lefthook", ".githooks", ".claude", ".claude-plugin", ".vscode",
    ".vscode-insiders", ".vs", ".cursor", ".idea", ".zed", ".fleet", ".toolcrib", ".devcontainer", ".codex", ".gemini",
    ".qwen", ".opencode", ".kilo", ".kilocode", ".roo", ".cline", ".continue", ".junie", ".amp", ".kiro", ".warp",
    ".agents", ".agent", ".crush", ".omp", ".factory", ".trae", ".amazonq", ".augment", ".windsurf", ".codeium",
    ".lmstudio", ".copilot", ".goose", ".aider", ".circleci", ".buildkite", ".woodpecker", ".ssh", ".gnupg", ".direnv",
    ".codex-plugin", ".cursor-plugin", ".fast-agent", ".grok", ".iflow", ".mcp-agent", ".mcphub", ".openclaw",
    ".qoder", ".tabnine", ".vibe", ".hermes", ".pi", ".kimi", ".codebuddy", ".openhands", ".rovodev", ".air", ".idx",
    ".emacs.d", ".vim", "launchagents", "launchdaemons", "cron.d",
})  # fmt: skip
"""Directories in which every file is decisive, wherever they are."""
DECISIVE_TREES: Final = (
    (".github", "workflows"), (".github", "actions"), (".github", "hooks"), (".gitea", "workflows"),
    (".forgejo", "workflows"), (".gitlab", "ci"), (".config", "git"), (".config", "fish"), (".config", "systemd"),
    (".config", "autostart"), (".config", "environment.d"), (".config", "nvim"), (".config", "zed"),
    (".config", "opencode"), (".config", "kilo"), (".config", "amp"), (".config", "crush"), (".config", "goose"),
    (".config", "mise"), (".config", "direnv"), (".local", "bin"), (".cargo", "bin"), ("systemd", "user"),
    ("claude", "claude_desktop_config.json"), (".github", "mcp.json"), (".aws", "amazonq"), (".aws", "config"),
    ("code", "user"), ("code - insiders", "user"), ("trae", "user"), (".cargo", "config"), (".cargo", "config.toml"),
)  # fmt: skip
"""Consecutive parts of a path below which every file is decisive."""
DECISIVE_FILES: Final = frozenset({
    ".mcp.json", "mcp.json", "mcp_config.json", "mcp-config.json", "mcp_settings.json", "cline_mcp_settings.json",
    ".claude.json", "fastmcp.json", "opencode.json", "opencode.jsonc", "kilo.json", "kilo.jsonc", "crush.json",
    ".crush.json", "crushrc", ".crushrc", ".devcontainer.json", "fast-agent.yaml", "fastagent.config.yaml",
    "librechat.yaml", "mcp_agent.config.yaml", ".mcphost.json", ".mcphost.yml",
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv",
    ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".mkshrc", ".cshrc", ".tcshrc", ".login", ".logout", ".xinitrc",
    ".xprofile", ".xsession", ".xsessionrc", ".pam_environment", ".inputrc", ".screenrc", ".tmux.conf",
    ".envrc", ".env.vault", ".mise.toml", "mise.toml", ".tool-versions", ".vimrc", ".exrc", ".nvimrc", ".nvim.lua",
    ".emacs", ".pdbrc", ".gdbinit", ".lldbinit", ".pythonrc", ".irbrc", "sitecustomize.py", "usercustomize.py",
    "head", ".gitconfig", ".gitmodules", ".gitattributes", ".hgrc", ".pre-commit-config.yaml", ".pre-commit-config.yml",
    "lefthook.yml", "lefthook.yaml", ".lefthook.yml", ".lefthook.yaml", ".npmrc", ".yarnrc", ".yarnrc.yml",
    ".pnpmfile.cjs", "pip.conf", ".condarc", "crontab",
    ".gitlab-ci.yml", ".gitlab-ci.yaml", ".travis.yml", ".drone.yml", ".cirrus.yml", ".appveyor.yml", "appveyor.yml",
    "azure-pipelines.yml", "azure-pipelines.yaml", "bitbucket-pipelines.yml", "jenkinsfile", ".woodpecker.yml",
    ".semaphore", "cloudbuild.yaml", "cloudbuild.yml", "buildspec.yml",
})  # fmt: skip
"""Names of files that are decisive wherever they are.

`head` makes a directory a bare repository, whose configuration git obeys as soon as it runs there.
"""
_DECISIVE_ENDINGS: Final = (".pth", ".code-workspace")
_WORKTREES: Final = frozenset({(".claude", "worktrees"), (".cursor", "worktrees")})
"""Where other apps keep whole working trees. Their location alone does not make a project there decisive."""


@dataclass(frozen=True, slots=True)
class NamedPath:
    """A path named by a call, absolute, links unresolved. `is_tree`: everything below it is touched too.

    `path` is None if the call does not specify which file it touches.
    """

    path: str | None
    is_tree: bool = False


@dataclass(frozen=True, slots=True)
class TouchedPath:
    """A path resolved by the file system. `worktree` is the root of the work task's worktree that contains it.

    `is_linked` means that the file has several names, and its other names decide what it is. `is_program` means that
    the crib itself runs from it.
    """

    path: str | None
    closed: Closed | None = None
    worktree: str | None = None
    is_linked: bool = False
    is_program: bool = False


def zone_of(touched: Sequence[TouchedPath] | None, projects: Iterable[str | None]) -> Zone:
    """Return the strictest zone of all touched paths, or `outside` without any.

    `projects` are the real directories that count as the caller's project.
    """
    roots = tuple(project for project in projects if project is not None)
    zones = {_zone(each, roots) for each in touched or ()} or {"outside"}
    return next(zone for zone in _STRICTEST_FIRST if zone in zones)


def closed_paths(touched: Sequence[TouchedPath] | None, projects: Iterable[str | None]) -> tuple[TouchedPath, ...]:
    """Return the touched paths that are closed to a caller with these projects."""
    roots = tuple(project for project in projects if project is not None)
    return tuple(each for each in touched or () if _is_closed(each, roots))


def _zone(touched: TouchedPath, roots: Sequence[str]) -> Zone:
    if _is_closed(touched, roots):
        return "home"
    if touched.path is None:
        return "unknown"
    if not any(is_inside(touched.path, root) for root in roots):
        return "outside"
    return "decisive" if touches_decisive(touched) else "project"


def touches_decisive(touched: TouchedPath) -> bool:
    """Return whether a path is a file that decides what runs, inside a project or not. An unknown path may be one."""
    if touched.path is None or touched.is_linked or touched.is_program:
        return True
    return is_decisive(touched.path, touched.worktree)


def _is_closed(touched: TouchedPath, roots: Sequence[str]) -> bool:
    """Return whether the path is closed. A worktree is part of the home, but also the project of its own task."""
    if touched.closed is None:
        return False
    worktree = touched.worktree
    return touched.closed != "inside" or worktree is None or not any(is_inside(root, worktree) for root in roots)


def is_decisive(path: str, worktree: str | None = None) -> bool:
    """Return whether a file decides what runs. Only the part of the path below `worktree` counts, if set."""
    inner = PurePath(path)
    if worktree is not None and inner.is_relative_to(worktree):
        inner = inner.relative_to(worktree)
    parts = tuple(_fold_name(part) for part in inner.parts)
    for at in range(len(parts) - 2):
        if parts[at : at + 2] in _WORKTREES:
            parts = parts[at + 3 :]
            break
    if any(part in DECISIVE_DIRECTORIES or part in DECISIVE_FILES for part in parts):
        return True
    if parts and parts[-1].endswith(_DECISIVE_ENDINGS):
        return True
    return any(pair in DECISIVE_TREES for pair in itertools.pairwise(parts))


def _fold_name(part: str) -> str:
    """Return a name as the most lenient file system compares it. Windows ignores trailing dots and spaces."""
    visible = "".join(char for char in normalized("NFKC", part) if unicodedata.category(char) != "Cf")
    return visible.casefold().rstrip(". ") or part


def is_inside(path: str, directory: str) -> bool:
    """Return whether a real path is the directory or lies in it. A path that is not real lies nowhere.

    The root of the file system never counts: a session that happens to start there would own all of it.
    """
    inner, outer = PurePath(path), PurePath(directory)
    if not outer.is_absolute() or len(outer.parts) == 1 or ".." in inner.parts:
        return False
    return inner.is_relative_to(outer)
