"""Where each app keeps its files: a table of apps, scopes and systems.

The order of the table is the priority within one scope. Paths are built from a given home, environment and working
directory. Must never read the environment of this process or open a file.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from toolcrib.base.named_secrets import SecretRecord
from toolcrib.model.problems import Problem
from toolcrib.model.servers import Scope
from toolcrib.servers.readers.read import ConfigFile

MAX_DEPTH = 64
MAX_MATCHES = 2_000
"""Files read for one pattern; more are reported as a problem."""

ALL = ("linux", "darwin", "win32")
_UNIX = ("linux", "darwin")


class PlaceRow(NamedTuple):
    """One file of one app: its format, scope, path and systems.

    In paths, `~` is the user's home and words in braces are directories that a variable can move; see `_roots`. Paths
    of project files are relative to each directory of the project.
    """

    format: str
    scope: Scope
    path: str
    systems: tuple[str, ...] = ALL


class ConfigFiles(NamedTuple):
    """The files that may contain servers, and the problems of patterns that match too many."""

    files: tuple[ConfigFile, ...]
    problems: tuple[Problem, ...] = ()
    consulted: tuple[Path, ...] = ()
    """Other files that decided which files count; see `servers.extensions`."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The input for building paths. `directories` are the project's, nearest first; `project` is its real root.

    `secrets` are the records of the secrets that the crib stores.
    """

    home: Path
    crib: Path
    environment: Mapping[str, str]
    directories: tuple[Path, ...] = ()
    project: Path | None = None
    platform: str = "linux"
    secrets: Mapping[str, SecretRecord] = field(default_factory=dict[str, SecretRecord])


_STORAGE = "{app}/Code/User/globalStorage"

TABLE: tuple[PlaceRow, ...] = (
    PlaceRow("toolcrib", "user", "{crib}/mcp.json"),
    PlaceRow("toolcrib", "project", ".toolcrib/mcp.json"),
    PlaceRow("claude-state", "user", "{claude-state}/.claude.json"),
    PlaceRow("claude-code", "project", ".mcp.json"),
    PlaceRow("claude-code", "managed", "/etc/claude-code/managed-mcp.json", ("linux",)),
    PlaceRow("claude-code", "managed", "/Library/Application Support/ClaudeCode/managed-mcp.json", ("darwin",)),
    PlaceRow("claude-code", "managed", "{program-files}/ClaudeCode/managed-mcp.json", ("win32",)),
    PlaceRow("claude-settings", "managed", "/etc/claude-code/managed-settings.json", ("linux",)),
    PlaceRow(
        "claude-settings", "managed", "/Library/Application Support/ClaudeCode/managed-settings.json", ("darwin",)
    ),
    PlaceRow("claude-settings", "managed", "{program-files}/ClaudeCode/managed-settings.json", ("win32",)),
    PlaceRow("claude-settings", "user", "{claude}/settings.json"),
    PlaceRow("claude-settings", "project", ".claude/settings.json"),
    PlaceRow("claude-settings", "project", ".claude/settings.local.json"),
    PlaceRow("claude-desktop", "user", "{app}/Claude/claude_desktop_config.json"),
    PlaceRow("cursor", "user", "~/.cursor/mcp.json"),
    PlaceRow("cursor", "project", ".cursor/mcp.json"),
    PlaceRow("vscode", "user", "{app}/Code/User/mcp.json"),
    PlaceRow("vscode", "user", "{app}/Code/User/profiles/*/mcp.json"),
    PlaceRow("vscode", "user", "{app}/Code - Insiders/User/mcp.json"),
    PlaceRow("vscode-settings", "user", "{app}/Code/User/settings.json"),
    PlaceRow("vscode", "project", ".vscode/mcp.json"),
    PlaceRow("vscode-settings", "project", ".vscode/settings.json"),
    PlaceRow("devcontainer", "project", ".devcontainer/devcontainer.json"),
    PlaceRow("devcontainer", "project", ".devcontainer.json"),
    PlaceRow("visual-studio", "user", "~/.mcp.json", ("win32",)),
    PlaceRow("visual-studio", "project", ".vs/mcp.json"),
    PlaceRow("copilot-cli", "user", "{copilot}/mcp-config.json"),
    PlaceRow("copilot-cli", "project", ".github/mcp.json"),
    PlaceRow("windsurf", "user", "~/.codeium/windsurf/mcp_config.json"),
    PlaceRow("windsurf", "user", "~/.codeium/mcp_config.json"),
    PlaceRow("windsurf", "project", ".windsurf/mcp_config.json"),
    PlaceRow("windsurf", "project", ".windsurf/mcp.json"),
    PlaceRow("zed", "user", "{config}/zed/settings.json", _UNIX),
    PlaceRow("zed", "user", "{app}/Zed/settings.json", ("win32",)),
    PlaceRow("zed", "project", ".zed/settings.json"),
    PlaceRow("codex", "user", "{codex}/config.toml"),
    PlaceRow("codex", "project", ".codex/config.toml"),
    PlaceRow("codex", "managed", "/etc/codex/managed_config.toml", _UNIX),
    PlaceRow("codex", "managed", "/etc/codex/config.toml", _UNIX),
    PlaceRow("codex", "managed", "{program-data}/OpenAI/Codex/config.toml", ("win32",)),
    PlaceRow("gemini", "user", "~/.gemini/settings.json"),
    PlaceRow("gemini", "project", ".gemini/settings.json"),
    PlaceRow("gemini", "managed", "/etc/gemini-cli/settings.json", ("linux",)),
    PlaceRow("gemini", "managed", "/Library/Application Support/GeminiCli/settings.json", ("darwin",)),
    PlaceRow("gemini", "managed", "{program-data}/gemini-cli/settings.json", ("win32",)),
    PlaceRow("qwen", "user", "~/.qwen/settings.json"),
    PlaceRow("qwen", "project", ".qwen/settings.json"),
    PlaceRow("opencode", "user", "{opencode}/opencode.json"),
    PlaceRow("opencode", "user", "{opencode}/opencode.jsonc"),
    PlaceRow("opencode", "user", "{opencode-file}"),
    PlaceRow("opencode", "project", "opencode.json"),
    PlaceRow("opencode", "project", "opencode.jsonc"),
    PlaceRow("opencode", "project", ".opencode/opencode.json"),
    PlaceRow("opencode", "project", ".opencode/opencode.jsonc"),
    PlaceRow("opencode", "managed", "/etc/opencode/opencode.json", _UNIX),
    PlaceRow("kilo", "user", "{config}/kilo/kilo.json"),
    PlaceRow("kilo", "user", "{config}/kilo/kilo.jsonc"),
    PlaceRow("kilo", "project", "kilo.json"),
    PlaceRow("kilo", "project", "kilo.jsonc"),
    PlaceRow("kilo", "project", ".kilo/kilo.json"),
    PlaceRow("kilo", "project", ".kilo/kilo.jsonc"),
    PlaceRow("kilo-legacy", "project", ".kilocode/mcp.json"),
    PlaceRow("kilo-legacy", "user", f"{_STORAGE}/kilocode.kilo-code/settings/mcp_settings.json"),
    PlaceRow("kilo-legacy", "user", "~/.kilocode/cli/global/settings/mcp_settings.json"),
    PlaceRow("cline", "user", "{cline}/data/settings/cline_mcp_settings.json"),
    PlaceRow("cline", "user", f"{_STORAGE}/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
    PlaceRow("roo", "user", f"{_STORAGE}/rooveterinaryinc.roo-cline/settings/mcp_settings.json"),
    PlaceRow("roo", "project", ".roo/mcp.json"),
    PlaceRow("continue", "user", "~/.continue/config.yaml"),
    PlaceRow("continue", "user", "~/.continue/mcpServers/*.yaml"),
    PlaceRow("continue", "project", ".continue/mcpServers/*.yaml"),
    PlaceRow("continue-json", "project", ".continue/mcpServers/*.json"),
    PlaceRow("goose", "user", "{goose}/config.yaml", _UNIX),
    PlaceRow("goose", "user", "{app}/Block/goose/config/config.yaml", ("win32",)),
    PlaceRow("junie", "user", "~/.junie/mcp/mcp.json"),
    PlaceRow("junie", "project", ".junie/mcp/mcp.json"),
    PlaceRow("amp", "user", "{config}/amp/settings.json"),
    PlaceRow("amp", "project", ".amp/settings.json"),
    PlaceRow("amp", "project", ".amp/settings.jsonc"),
    PlaceRow("kiro", "user", "~/.kiro/settings/mcp.json"),
    PlaceRow("kiro", "project", ".kiro/settings/mcp.json"),
    PlaceRow("kiro-agent", "user", "~/.kiro/agents/*.json"),
    PlaceRow("kiro-agent", "project", ".kiro/agents/*.json"),
    PlaceRow("lm-studio", "user", "~/.lmstudio/mcp.json"),
    PlaceRow("warp", "user", "~/.warp/.mcp.json"),
    PlaceRow("warp", "project", ".warp/.mcp.json"),
    PlaceRow("warp", "project", ".agents/.mcp.json"),
    PlaceRow("crush", "user", "{config}/crush/crush.json"),
    PlaceRow("crush", "user", "{data}/crush/crush.json"),
    PlaceRow("crush", "project", "crush.json"),
    PlaceRow("crush", "project", ".crush.json"),
    PlaceRow("crush", "project", ".crush/crush.json"),
    PlaceRow("crush", "managed", "/etc/crush/crush.json", _UNIX),
    PlaceRow("crush-script", "user", "{config}/crush/crushrc"),
    PlaceRow("crush-script", "project", "crushrc"),
    PlaceRow("crush-script", "project", ".crushrc"),
    PlaceRow("oh-my-pi", "user", "~/.omp/agent/mcp.json"),
    PlaceRow("oh-my-pi", "user", "~/.omp/mcp.json"),
    PlaceRow("oh-my-pi", "user", "~/.omp/agent/.mcp.json"),
    PlaceRow("oh-my-pi", "user", "~/.omp/profiles/*/agent/mcp.json"),
    PlaceRow("oh-my-pi", "project", ".omp/mcp.json"),
    PlaceRow("oh-my-pi", "project", ".omp/.mcp.json"),
    PlaceRow("claude-dir", "user", "{claude}/mcp.json"),
    PlaceRow("claude-dir", "project", ".claude/mcp.json"),
    PlaceRow("claude-dir", "project", ".claude/.mcp.json"),
    PlaceRow("factory", "user", "~/.factory/mcp.json"),
    PlaceRow("factory", "project", ".factory/mcp.json"),
    PlaceRow("trae", "user", "{app}/Trae/User/mcp.json"),
    PlaceRow("trae", "user", "{app}/Trae CN/User/mcp.json"),
    PlaceRow("trae", "project", ".trae/mcp.json"),
    PlaceRow("antigravity", "user", "~/.gemini/antigravity/mcp_config.json"),
    PlaceRow("antigravity", "user", "~/.gemini/config/mcp_config.json"),
    PlaceRow("antigravity", "project", ".agents/mcp_config.json"),
    PlaceRow("antigravity", "project", ".agent/mcp_config.json"),
    PlaceRow("amazon-q", "user", "~/.aws/amazonq/mcp.json"),
    PlaceRow("amazon-q-agent", "user", "~/.aws/amazonq/cli-agents/*.json"),
    PlaceRow("amazon-q", "project", ".amazonq/mcp.json"),
    PlaceRow("amazon-q-agent", "project", ".amazonq/cli-agents/*.json"),
    PlaceRow("amazon-q-agent", "user", "~/.aws/amazonq/agents/*.json"),
    PlaceRow("amazon-q-agent", "project", ".amazonq/agents/*.json"),
    PlaceRow("amazon-q-agent", "user", "~/.aws/amazonq/default.json"),
    PlaceRow("amazon-q-agent", "project", ".amazonq/default.json"),
    PlaceRow("auggie", "user", "~/.augment/settings.json"),
    PlaceRow("auggie", "project", ".augment/settings.json"),
    PlaceRow("auggie", "project", ".augment/settings.local.json"),
    PlaceRow("jetbrains-ai", "project", ".ai/mcp/mcp.json"),
    PlaceRow("air", "project", ".air/mcp.json"),
    PlaceRow("copilot-jetbrains", "user", "{config}/github-copilot/intellij/mcp.json", _UNIX),
    PlaceRow("copilot-jetbrains", "user", "{local-app}/github-copilot/intellij/mcp.json", ("win32",)),
    PlaceRow("firebase-studio", "project", ".idx/mcp.json"),
    PlaceRow("dot-agents", "user", "~/.agents/mcp.json"),
    PlaceRow("dot-agents", "project", ".agents/mcp.json"),
    PlaceRow("pi", "user", "~/.pi/agent/mcp.json"),
    PlaceRow("pi", "user", "~/.pi/agent/mcp-adapter.json"),
    PlaceRow("pi", "project", ".pi/mcp.json"),
    PlaceRow("qoder", "user", "{app}/Qoder/SharedClientCache/mcp.json"),
    PlaceRow("qoder-settings", "user", "~/.qoder/settings.json"),
    PlaceRow("qoder", "project", ".qoder/mcp.json"),
    PlaceRow("qoder-settings", "project", ".qoder/settings.local.json"),
    PlaceRow("openclaw", "user", "~/.openclaw/openclaw.json"),
    PlaceRow("openclaw", "project", ".openclaw/openclaw.json"),
    PlaceRow("vibe", "user", "{vibe}/config.toml"),
    PlaceRow("vibe", "project", ".vibe/config.toml"),
    PlaceRow("iflow", "user", "~/.iflow/settings.json"),
    PlaceRow("iflow", "project", ".iflow/settings.json"),
    PlaceRow("grok", "user", "{grok}/config.toml"),
    PlaceRow("grok", "project", ".grok/config.toml"),
    PlaceRow("grok-settings", "user", "~/.grok/user-settings.json"),
    PlaceRow("grok-settings", "project", ".grok/settings.json"),
    PlaceRow("kimi", "user", "{kimi}/mcp.json"),
    PlaceRow("kimi", "user", "~/.kimi/mcp.json"),
    PlaceRow("kimi", "project", ".kimi-code/mcp.json"),
    PlaceRow("kimi", "project", ".kimi/mcp.json"),
    PlaceRow("codebuddy", "user", "~/.codebuddy/.mcp.json"),
    PlaceRow("codebuddy", "user", "~/.codebuddy/mcp.json"),
    PlaceRow("codebuddy", "project", ".codebuddy/.mcp.json"),
    PlaceRow("codebuddy", "project", ".codebuddy/mcp.json"),
    PlaceRow("openhands", "user", "~/.openhands/mcp.json"),
    PlaceRow("openhands", "project", ".openhands/mcp.json"),
    PlaceRow("rovodev", "user", "~/.rovodev/mcp.json"),
    PlaceRow("rovodev", "project", ".rovodev/mcp.json"),
    PlaceRow("tabnine", "user", "~/.tabnine/agent/settings.json"),
    PlaceRow("tabnine", "project", ".tabnine/agent/settings.json"),
    PlaceRow("tabnine", "managed", "/etc/tabnine-cli/settings.json", ("linux",)),
    PlaceRow("tabnine", "managed", "/Library/Application Support/TabnineCli/settings.json", ("darwin",)),
    PlaceRow("tabnine-servers", "user", "~/.tabnine/mcp_servers.json"),
    PlaceRow("tabnine-servers", "project", ".tabnine/mcp_servers.json"),
    PlaceRow("hermes", "user", "~/.hermes/config.yaml"),
    PlaceRow("librechat", "project", "librechat.yaml"),
    PlaceRow("fast-agent", "project", "fastagent.config.yaml"),
    PlaceRow("fast-agent", "project", "fast-agent.yaml"),
    PlaceRow("fast-agent", "project", ".fast-agent/fastagent.config.yaml"),
    PlaceRow("fast-agent", "project", ".fast-agent/fast-agent.yaml"),
    PlaceRow("mcp-agent", "user", "~/.mcp-agent/mcp_agent.config.yaml"),
    PlaceRow("mcp-agent", "project", "mcp_agent.config.yaml"),
    PlaceRow("mcp-agent", "project", ".mcp-agent/mcp_agent.config.yaml"),
    PlaceRow("mcphub", "user", "{config}/mcphub/servers.json"),
    PlaceRow("mcphub", "project", ".mcphub/servers.json"),
    PlaceRow("mcphost", "user", "~/.mcphost.json"),
    PlaceRow("mcphost", "user", "~/.mcphost.yml"),
    PlaceRow("jan", "user", "{data}/Jan/data/mcp_config.json", ("linux",)),
    PlaceRow("jan", "user", "{app}/Jan/data/mcp_config.json", ("darwin", "win32")),
    PlaceRow("anythingllm", "user", "{app}/anythingllm-desktop/storage/plugins/anythingllm_mcp_servers.json"),
    PlaceRow("boltai", "user", "~/.boltai/mcp.json"),
    PlaceRow("codex-plugin", "project", ".codex-plugin/plugin.json"),
    PlaceRow("cursor-plugin", "project", ".cursor-plugin/plugin.json"),
    PlaceRow("mcp-json", "project", "mcp.json"),
    PlaceRow("fastmcp", "project", "fastmcp.json"),
    PlaceRow("registry", "project", "server.json"),
    PlaceRow("mcpb", "project", "manifest.json"),
)


def project_directories(cwd: Path) -> tuple[tuple[Path, ...], Path]:
    """Return the directories from `cwd` up to the repository's root, nearest first, and the project's real path.

    Outside a repository, that is `cwd` alone, since parent directories may belong to others.
    """
    start = cwd.absolute()
    walked: list[Path] = []
    for directory in (start, *start.parents)[:MAX_DEPTH]:
        walked.append(directory)
        if os.path.lexists(directory / ".git"):
            return tuple(walked), directory.resolve()
    return (start,), start.resolve()


def all_places(around: Machine) -> ConfigFiles:
    """Return every file that may contain servers, existing or not, in the order of the table.

    A user-level file never counts as a project's, even if the home is a repository.
    """
    roots = _roots(around)
    found: list[ConfigFile] = []
    problems: list[Problem] = []
    for rank, row in enumerate(TABLE):
        if row.scope == "project" or around.platform not in row.systems:
            continue
        path = _fill(row.path, roots)
        if path is not None:
            found += [ConfigFile(row.format, row.scope, file, rank) for file in _matches(path, problems)]
    taken = {place.file for place in found}
    found += [place for place in _project_places(around, problems) if place.file not in taken]
    return ConfigFiles(tuple(found), tuple(problems))


def directory_of(word: str, around: Machine) -> Path | None:
    """Return the directory that a word in braces stands for."""
    return _roots(around)[word]


def _project_places(around: Machine, problems: list[Problem]) -> Iterator[ConfigFile]:
    for directory in around.directories:
        for rank, row in enumerate(TABLE):
            if row.scope == "project" and around.platform in row.systems:
                for file in _matches(directory / row.path, problems):
                    yield ConfigFile(row.format, row.scope, file, rank, directory, around.project)


def _roots(around: Machine) -> Mapping[str, Path | None]:
    """Return the values of words in braces. A variable counts only if it is an absolute path."""
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
        "{grok}": moved("GROK_HOME", home / ".grok"),
        "{kimi}": moved("KIMI_CODE_HOME", home / ".kimi-code"),
        "{vibe}": moved("VIBE_HOME", home / ".vibe"),
        "{local-app}": moved("LOCALAPPDATA", home / "AppData" / "Local"),
        "{program-files}": moved("ProgramFiles", Path("C:/Program Files")),
        "{program-data}": moved("ProgramData", Path("C:/ProgramData")),
    }


def _fill(path: str, roots: Mapping[str, Path | None]) -> Path | None:
    first, _, rest = path.partition("/")
    if not first:
        return Path(path)
    root = roots[first]
    return root / rest if root is not None and rest else root


def _matches(path: Path, problems: list[Problem]) -> Sequence[Path]:
    """Return the files that match a pattern, in order; a plain path matches itself. Reports what is left out."""
    parts = path.parts
    wild = next((index for index, part in enumerate(parts) if "*" in part), None)
    if wild is None:
        return (path,)
    base = Path(*parts[:wild])
    try:
        matched = sorted(base.glob(str(Path(*parts[wild:]))))
    except OSError:
        return ()
    if len(matched) > MAX_MATCHES:
        message = f"{len(matched)} files match {path}; only the first {MAX_MATCHES} are read."
        problems.append(Problem("config.too_many", message, file=str(base)))
    return matched[:MAX_MATCHES]
