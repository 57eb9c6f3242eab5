"""Where each client keeps its file: a table of clients, levels and systems.

The table's order is the order of priority within one level. Paths are made from a given home, environment and working
directory; the environment of this process is never read, and no file is opened here.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from toolcrib.config.readers.read import Place
from toolcrib.model.servers import Scope

MAX_DEPTH = 64
MAX_MATCHES = 200

ALL = ("linux", "darwin", "win32")
_UNIX = ("linux", "darwin")


class Row(NamedTuple):
    """One file of one client: its format, level and path, on which systems.

    In paths `~` is the person's home and words in braces are places that a variable can move; see `_roots`. Paths of
    project files are relative to each directory of the project.
    """

    format: str
    scope: Scope
    path: str
    systems: tuple[str, ...] = ALL


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What paths are made from. `directories` are the project's, nearest first; `project` its real root."""

    home: Path
    crib: Path
    environment: Mapping[str, str]
    directories: tuple[Path, ...] = ()
    project: Path | None = None
    platform: str = "linux"


_STORAGE = "{app}/Code/User/globalStorage"

TABLE: tuple[Row, ...] = (
    Row("toolcrib", "user", "{crib}/mcp.json"),
    Row("toolcrib", "project", ".toolcrib/mcp.json"),
    Row("claude-state", "user", "{claude-state}/.claude.json"),
    Row("claude-code", "project", ".mcp.json"),
    Row("claude-code", "managed", "/etc/claude-code/managed-mcp.json", ("linux",)),
    Row("claude-code", "managed", "/Library/Application Support/ClaudeCode/managed-mcp.json", ("darwin",)),
    Row("claude-code", "managed", "{program-files}/ClaudeCode/managed-mcp.json", ("win32",)),
    Row("claude-settings", "managed", "/etc/claude-code/managed-settings.json", ("linux",)),
    Row("claude-settings", "managed", "/Library/Application Support/ClaudeCode/managed-settings.json", ("darwin",)),
    Row("claude-settings", "managed", "{program-files}/ClaudeCode/managed-settings.json", ("win32",)),
    Row("claude-settings", "user", "{claude}/settings.json"),
    Row("claude-settings", "project", ".claude/settings.json"),
    Row("claude-settings", "project", ".claude/settings.local.json"),
    Row("claude-plugin", "user", "{claude}/plugins/cache/*/*/*/.claude-plugin/plugin.json"),
    Row("claude-plugin-mcp", "user", "{claude}/plugins/cache/*/*/*/.mcp.json"),
    Row("claude-desktop", "user", "{app}/Claude/claude_desktop_config.json"),
    Row("cursor", "user", "~/.cursor/mcp.json"),
    Row("cursor", "project", ".cursor/mcp.json"),
    Row("vscode", "user", "{app}/Code/User/mcp.json"),
    Row("vscode", "user", "{app}/Code/User/profiles/*/mcp.json"),
    Row("vscode", "user", "{app}/Code - Insiders/User/mcp.json"),
    Row("vscode-settings", "user", "{app}/Code/User/settings.json"),
    Row("vscode", "project", ".vscode/mcp.json"),
    Row("vscode-settings", "project", ".vscode/settings.json"),
    Row("devcontainer", "project", ".devcontainer/devcontainer.json"),
    Row("devcontainer", "project", ".devcontainer.json"),
    Row("visual-studio", "user", "~/.mcp.json", ("win32",)),
    Row("visual-studio", "project", ".vs/mcp.json"),
    Row("copilot-cli", "user", "{copilot}/mcp-config.json"),
    Row("copilot-cli", "project", ".github/mcp.json"),
    Row("windsurf", "user", "~/.codeium/windsurf/mcp_config.json"),
    Row("windsurf", "user", "~/.codeium/mcp_config.json"),
    Row("windsurf", "project", ".windsurf/mcp_config.json"),
    Row("zed", "user", "{config}/zed/settings.json", _UNIX),
    Row("zed", "user", "{app}/Zed/settings.json", ("win32",)),
    Row("zed", "project", ".zed/settings.json"),
    Row("codex", "user", "{codex}/config.toml"),
    Row("codex", "project", ".codex/config.toml"),
    Row("codex", "managed", "/etc/codex/managed_config.toml", _UNIX),
    Row("codex", "managed", "/etc/codex/config.toml", _UNIX),
    Row("codex", "managed", "{program-data}/OpenAI/Codex/config.toml", ("win32",)),
    Row("gemini", "user", "~/.gemini/settings.json"),
    Row("gemini", "project", ".gemini/settings.json"),
    Row("gemini", "managed", "/etc/gemini-cli/settings.json", ("linux",)),
    Row("gemini", "managed", "/Library/Application Support/GeminiCli/settings.json", ("darwin",)),
    Row("gemini", "managed", "{program-data}/gemini-cli/settings.json", ("win32",)),
    Row("gemini-extension", "user", "~/.gemini/extensions/*/gemini-extension.json"),
    Row("qwen", "user", "~/.qwen/settings.json"),
    Row("qwen", "project", ".qwen/settings.json"),
    Row("qwen-extension", "user", "~/.qwen/extensions/*/qwen-extension.json"),
    Row("opencode", "user", "{opencode}/opencode.json"),
    Row("opencode", "user", "{opencode}/opencode.jsonc"),
    Row("opencode", "user", "{opencode-file}"),
    Row("opencode", "project", "opencode.json"),
    Row("opencode", "project", "opencode.jsonc"),
    Row("opencode", "project", ".opencode/opencode.json"),
    Row("opencode", "project", ".opencode/opencode.jsonc"),
    Row("opencode", "managed", "/etc/opencode/opencode.json", _UNIX),
    Row("kilo", "user", "{config}/kilo/kilo.json"),
    Row("kilo", "user", "{config}/kilo/kilo.jsonc"),
    Row("kilo", "project", "kilo.json"),
    Row("kilo", "project", "kilo.jsonc"),
    Row("kilo", "project", ".kilo/kilo.json"),
    Row("kilo", "project", ".kilo/kilo.jsonc"),
    Row("kilo-legacy", "project", ".kilocode/mcp.json"),
    Row("kilo-legacy", "user", f"{_STORAGE}/kilocode.kilo-code/settings/mcp_settings.json"),
    Row("kilo-legacy", "user", "~/.kilocode/cli/global/settings/mcp_settings.json"),
    Row("cline", "user", "{cline}/data/settings/cline_mcp_settings.json"),
    Row("cline", "user", f"{_STORAGE}/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
    Row("roo", "user", f"{_STORAGE}/rooveterinaryinc.roo-cline/settings/mcp_settings.json"),
    Row("roo", "project", ".roo/mcp.json"),
    Row("continue", "user", "~/.continue/config.yaml"),
    Row("continue", "user", "~/.continue/mcpServers/*.yaml"),
    Row("continue", "project", ".continue/mcpServers/*.yaml"),
    Row("continue-json", "project", ".continue/mcpServers/*.json"),
    Row("goose", "user", "{goose}/config.yaml", _UNIX),
    Row("goose", "user", "{app}/Block/goose/config/config.yaml", ("win32",)),
    Row("junie", "user", "~/.junie/mcp/mcp.json"),
    Row("junie", "project", ".junie/mcp/mcp.json"),
    Row("amp", "user", "{config}/amp/settings.json"),
    Row("amp", "project", ".amp/settings.json"),
    Row("amp", "project", ".amp/settings.jsonc"),
    Row("kiro", "user", "~/.kiro/settings/mcp.json"),
    Row("kiro", "project", ".kiro/settings/mcp.json"),
    Row("kiro-agent", "user", "~/.kiro/agents/*.json"),
    Row("lm-studio", "user", "~/.lmstudio/mcp.json"),
    Row("warp", "user", "~/.warp/.mcp.json"),
    Row("warp", "project", ".warp/.mcp.json"),
    Row("warp", "project", ".agents/.mcp.json"),
    Row("crush", "user", "{config}/crush/crush.json"),
    Row("crush", "user", "{data}/crush/crush.json"),
    Row("crush", "project", "crush.json"),
    Row("crush", "project", ".crush.json"),
    Row("crush", "project", ".crush/crush.json"),
    Row("crush", "managed", "/etc/crush/crush.json", _UNIX),
    Row("crush-script", "user", "{config}/crush/crushrc"),
    Row("crush-script", "project", "crushrc"),
    Row("crush-script", "project", ".crushrc"),
    Row("oh-my-pi", "user", "~/.omp/agent/mcp.json"),
    Row("oh-my-pi", "user", "~/.omp/agent/.mcp.json"),
    Row("oh-my-pi", "user", "~/.omp/profiles/*/agent/mcp.json"),
    Row("oh-my-pi", "project", ".omp/mcp.json"),
    Row("oh-my-pi", "project", ".omp/.mcp.json"),
    Row("claude-dir", "user", "{claude}/mcp.json"),
    Row("claude-dir", "project", ".claude/mcp.json"),
    Row("claude-dir", "project", ".claude/.mcp.json"),
    Row("factory", "user", "~/.factory/mcp.json"),
    Row("factory", "project", ".factory/mcp.json"),
    Row("trae", "user", "{app}/Trae/User/mcp.json"),
    Row("trae", "project", ".trae/mcp.json"),
    Row("antigravity", "user", "~/.gemini/antigravity/mcp_config.json"),
    Row("antigravity", "user", "~/.gemini/config/mcp_config.json"),
    Row("antigravity", "project", ".agents/mcp_config.json"),
    Row("antigravity", "project", ".agent/mcp_config.json"),
    Row("amazon-q", "user", "~/.aws/amazonq/mcp.json"),
    Row("amazon-q-agent", "user", "~/.aws/amazonq/cli-agents/*.json"),
    Row("amazon-q", "project", ".amazonq/mcp.json"),
    Row("amazon-q-agent", "project", ".amazonq/cli-agents/*.json"),
    Row("auggie", "user", "~/.augment/settings.json"),
    Row("auggie", "project", ".augment/settings.json"),
    Row("auggie", "project", ".augment/settings.local.json"),
    Row("mcp-json", "project", "mcp.json"),
    Row("fastmcp", "project", "fastmcp.json"),
    Row("registry", "project", "server.json"),
    Row("mcpb", "project", "manifest.json"),
)


def project_directories(cwd: Path) -> tuple[tuple[Path, ...], Path]:
    """The directories from `cwd` up to the repository's root, nearest first, and the real path of the project.

    Outside a repository that is `cwd` alone: what lies above may belong to anybody.
    """
    start = cwd.absolute()
    walked: list[Path] = []
    for directory in (start, *start.parents)[:MAX_DEPTH]:
        walked.append(directory)
        if os.path.lexists(directory / ".git"):
            return tuple(walked), directory.resolve()
    return (start,), start.resolve()


def all_places(around: Surroundings) -> tuple[Place, ...]:
    """Every file that may hold servers, whether it exists or not, in the order of the table.

    A file that is a person's own is not one of a project too, even if the home is a repository.
    """
    roots = _roots(around)
    found: list[Place] = []
    for rank, row in enumerate(TABLE):
        if row.scope == "project" or around.platform not in row.systems:
            continue
        path = _fill(row.path, roots)
        if path is not None:
            found += [Place(row.format, row.scope, file, rank) for file in _matches(path)]
    taken = {place.file for place in found}
    found += [place for place in _project_places(around) if place.file not in taken]
    return tuple(found)


def _project_places(around: Surroundings) -> Iterator[Place]:
    for directory in around.directories:
        for rank, row in enumerate(TABLE):
            if row.scope == "project" and around.platform in row.systems:
                for file in _matches(directory / row.path):
                    yield Place(row.format, row.scope, file, rank, directory, around.project)


def _roots(around: Surroundings) -> Mapping[str, Path | None]:
    """The words in braces. A variable counts only if it holds an absolute path."""
    home, variables = around.home, around.environment

    def moved(name: str, default: Path | None) -> Path | None:
        value = variables.get(name, "")
        return Path(value) if value and Path(value).is_absolute() else default

    config = moved("XDG_CONFIG_HOME", home / ".config")
    app = {
        "darwin": home / "Library" / "Application Support",
        "win32": moved("APPDATA", home / "AppData" / "Roaming"),
    }.get(around.platform, config)
    goose = moved("GOOSE_PATH_ROOT", None)
    return {
        "~": home,
        "{crib}": around.crib,
        "{config}": config,
        "{app}": app,
        "{data}": moved("XDG_DATA_HOME", home / ".local" / "share"),
        "{claude}": moved("CLAUDE_CONFIG_DIR", home / ".claude"),
        "{claude-state}": moved("CLAUDE_CONFIG_DIR", home),
        "{codex}": moved("CODEX_HOME", home / ".codex"),
        "{copilot}": moved("COPILOT_HOME", home / ".copilot"),
        "{cline}": moved("CLINE_DIR", home / ".cline"),
        "{goose}": goose / "config" if goose else (config / "goose" if config else None),
        "{opencode}": moved("OPENCODE_CONFIG_DIR", config / "opencode" if config else None),
        "{opencode-file}": moved("OPENCODE_CONFIG", None),
        "{program-files}": moved("ProgramFiles", Path("C:/Program Files")),
        "{program-data}": moved("ProgramData", Path("C:/ProgramData")),
    }


def _fill(path: str, roots: Mapping[str, Path | None]) -> Path | None:
    first, _, rest = path.partition("/")
    if not first:
        return Path(path)
    root = roots[first]
    return root / rest if root is not None and rest else root


def _matches(path: Path) -> Sequence[Path]:
    """The files a pattern stands for; a plain path stands for itself."""
    parts = path.parts
    wild = next((index for index, part in enumerate(parts) if "*" in part), None)
    if wild is None:
        return (path,)
    base = Path(*parts[:wild])
    try:
        return sorted(base.glob(str(Path(*parts[wild:]))))[:MAX_MATCHES]
    except OSError:
        return ()
